//! What a program may ask the driver about a frame: which virtual LAN's tag it has taken out. The kernel has a function for that
//! since 6.8, for programs that are bound to one interface and run in its driver.

use aya_obj::btf::{Btf, BtfKind};
use aya_obj::generated::bpf_insn;

/// The kernel's function.
const RX_VLAN_TAG: &str = "bpf_xdp_metadata_rx_vlan_tag";
/// What stands for it in `steer.c`.
const PLACEHOLDER: i32 = 0x6363_6900;

/// `BPF_JMP | BPF_CALL`, and `BPF_ALU64 | BPF_MOV | BPF_K`.
const CALL: u8 = 0x85;
const MOVE: u8 = 0xb7;
/// The number called is that of a function of the kernel's in its type information (`BPF_PSEUDO_KFUNC_CALL`).
const KERNEL_FUNCTION: u8 = 2;

/// Puts the kernel's function where it is to be asked for the tag. False: this kernel has none.
pub(super) fn ask(code: &mut [bpf_insn]) -> bool {
    let Ok(types) = Btf::from_sys_fs() else { return false };
    let Some(function) =
        types.id_by_type_name_kind(RX_VLAN_TAG, BtfKind::Func).ok().and_then(|id| i32::try_from(id).ok())
    else {
        return false;
    };
    for call in placeholders(code) {
        call.set_src_reg(KERNEL_FUNCTION);
        call.imm = function;
    }
    true
}

/// Puts an error there: nobody can be asked.
pub(super) fn do_not_ask(code: &mut [bpf_insn]) {
    for call in placeholders(code) {
        call.code = MOVE;
        call.set_dst_reg(0);
        call.imm = -libc::EOPNOTSUPP;
    }
}

fn placeholders(code: &mut [bpf_insn]) -> impl Iterator<Item = &mut bpf_insn> {
    code.iter_mut().filter(|op| op.code == CALL && op.src_reg() == 0 && op.imm == PLACEHOLDER)
}
