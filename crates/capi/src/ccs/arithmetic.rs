//! Elements and what is computed with them, as C calls them.

use super::status::{Code, Result};
use super::types::*;
use cci_am::{Accumulation, Number, Reduction};

pub(super) fn number(r#type: CCS_type_t) -> Result<Number> {
    Ok(match r#type {
        CCS_TYPE_I32 => Number::I32,
        CCS_TYPE_U32 => Number::U32,
        CCS_TYPE_I64 => Number::I64,
        CCS_TYPE_U64 => Number::U64,
        CCS_TYPE_F32 => Number::F32,
        CCS_TYPE_F64 => Number::F64,
        _ => return Err(Code::ARG),
    })
}

pub(super) fn reduction(op: CCS_op_t) -> Result<Reduction> {
    Ok(match op {
        CCS_OP_ADD => Reduction::Add,
        CCS_OP_PROD => Reduction::Product,
        CCS_OP_MIN => Reduction::Min,
        CCS_OP_MAX => Reduction::Max,
        CCS_OP_AND => Reduction::And,
        CCS_OP_OR => Reduction::Or,
        CCS_OP_XOR => Reduction::Xor,
        _ => return Err(Code::ARG),
    })
}

pub(super) fn accumulation(op: CCS_op_t) -> Result<Accumulation> {
    if op == CCS_OP_SET { Ok(Accumulation::Set) } else { reduction(op).map(Accumulation::Reduce) }
}
