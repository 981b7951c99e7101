//! The section `[services]`, for the layers above the core. It is no device.

use super::syntax::{Section, Wrong};

/// The section's name.
const NAME: &str = "services";

/// Whether a section is `[services]`. A section of this name that has a transport is a device.
pub(super) fn is_it(section: &Section<'_>) -> bool {
    section.name == NAME && section.get("transport").is_none()
}

/// The text of the directory that the section names. The layer that opens the directory checks it.
pub(super) fn directory(section: &Section<'_>) -> Result<Option<String>, Wrong> {
    if let Some(pair) = section.pairs.iter().find(|pair| pair.key != "directory") {
        let reason = format!(
            "there is no key {} in the section [{NAME}]; it has directory = TEXT, such as directory = host",
            pair.key
        );
        return Err(pair.wrong(reason));
    }
    Ok(section.get("directory").map(|pair| pair.value.to_owned()))
}

#[cfg(test)]
mod tests {
    use crate::Context;
    use std::path::Path;

    #[test]
    fn the_section_names_a_directory_and_is_no_device() {
        let read = |text: &str| Context::from_text(text, Path::new("cci.ini"));
        let text = "[services]\ndirectory = etcd://a:2379,b:2379?prefix=/x # where\n[shm]\ntransport = shm\n";
        let context = read(text).unwrap();
        assert_eq!(context.services_directory(), Some("etcd://a:2379,b:2379?prefix=/x"));
        assert_eq!(context.devices().len(), 1);
        assert!(context.notes().is_empty());

        let none = read("[shm]\ntransport = shm\n").unwrap();
        assert_eq!(none.services_directory(), None);
        let alone = read("[services]\ndirectory = host\n").unwrap();
        assert_eq!(alone.services_directory(), Some("host"));
        assert!(!alone.devices().is_empty(), "devices are found where a file names services alone");
    }

    #[test]
    fn a_device_of_this_name_goes_on_being_one() {
        let context = Context::from_text("[services]\ntransport = shm\n", Path::new("cci.ini")).unwrap();
        assert_eq!(context.devices()[0].name(), "services");
        assert_eq!(context.services_directory(), None);
    }

    #[test]
    fn a_mistyped_key_has_its_line() {
        let wrong = Context::from_text("[services]\n\ndirectroy = host\n", Path::new("cci.ini")).unwrap_err();
        let shown = wrong.to_string();
        assert!(shown.starts_with("cci.ini:3: ") && shown.contains("directory = "), "{shown}");
    }
}
