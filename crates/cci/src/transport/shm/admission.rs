//! Which processes an endpoint shares memory with. The kernel reports the user of the process at the other end of a socket
//! (`SO_PEERCRED`). Nothing else is known of that process: shared memory proves no names.

use crate::device::DeviceInfo;
use cci_sys::process;

/// Which processes may connect to an endpoint, and which a client accepts as a server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Processes of the same user. The endpoint has security, and this user could read the secrets that identify it.
    SameUser,
    /// Processes of the same user and of root, who can reach everything anyway.
    SameUserAndRoot,
    /// Processes of all users, if the device's configuration allows it (`all_users = on`).
    AllUsers,
}

impl Admission {
    /// The rule for an endpoint of this device. `has_security` says whether it was opened with credentials.
    pub(crate) fn of(device: &DeviceInfo, has_security: bool) -> Admission {
        match (has_security, device.shm.all_users) {
            (true, _) => Admission::SameUser,
            (false, true) => Admission::AllUsers,
            (false, false) => Admission::SameUserAndRoot,
        }
    }

    /// Whether a process of this user may connect.
    pub(super) fn admits_client(self, uid: u32) -> bool {
        match self {
            Admission::SameUser => uid == process::uid(),
            Admission::SameUserAndRoot => uid == process::uid() || uid == 0,
            Admission::AllUsers => true,
        }
    }

    /// Whether a process of the user `uid` may be the server of a URI. `named` is the user whose number is in the URI. A name
    /// without a number may belong to any user.
    pub(super) fn trusts_server(self, uid: u32, named: Option<u32>) -> bool {
        if named.is_some_and(|named| named != uid) {
            return false;
        }
        match self {
            Admission::SameUser => uid == process::uid(),
            Admission::SameUserAndRoot => uid == process::uid() || uid == 0 || named.is_some(),
            Admission::AllUsers => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Admission::{AllUsers, SameUser, SameUserAndRoot};

    #[test]
    fn each_admits_whom_it_says() {
        let (own, other) = (process::uid(), process::uid() + 1);
        for (admission, of_other) in [(SameUser, false), (SameUserAndRoot, false), (AllUsers, true)] {
            assert!(admission.admits_client(own) && admission.trusts_server(own, None));
            assert!(admission.trusts_server(own, Some(own)) && !admission.trusts_server(own, Some(other)));
            assert_eq!(admission.admits_client(other), of_other);
            assert_eq!(admission.trusts_server(other, None), of_other);
        }
        assert!(SameUserAndRoot.admits_client(0) && SameUserAndRoot.trusts_server(0, None));
        assert!(SameUserAndRoot.trusts_server(other, Some(other)), "the caller named that user");
        assert!(!SameUser.trusts_server(other, Some(other)));
        assert!(own == 0 || !SameUser.admits_client(0), "root is another user");
    }
}
