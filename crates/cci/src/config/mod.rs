//! Where devices come from: found on the machine ([`builtin`]), or given in an INI file ([`ini`]).

pub(crate) mod builtin;
pub(crate) mod ini;
