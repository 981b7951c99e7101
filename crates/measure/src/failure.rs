//! Why something could not be done, and what can be done about it.

use crate::iproute::Refused;
use std::fmt;

/// What fails here returns.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why, with a remedy where there is one.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// What the user can do.
    pub remedy: Option<String>,
    /// Whether what was asked for makes no sense here.
    pub is_usage: bool,
}

impl Failure {
    /// The thing asked for failed.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), remedy: None, is_usage: false }
    }

    /// What was asked for makes no sense here.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { is_usage: true, ..Failure::new(message) }
    }

    /// The user has ended it.
    pub fn interrupted() -> Failure {
        Failure::new("interrupted")
    }

    /// With what the user can do.
    pub fn remedy(self, remedy: impl Into<String>) -> Failure {
        Failure { remedy: Some(remedy.into()), ..self }
    }

    /// With what it was about in front.
    pub fn of(self, what: &str) -> Failure {
        Failure { message: format!("{what}: {}", self.message), ..self }
    }
}

/// Message and remedy in one line.
impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.remedy {
            Some(remedy) => write!(out, "{} ({remedy})", self.message),
            None => out.write_str(&self.message),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        let failure = Failure::new(refused.to_string());
        if let Refused::Missing(..) = refused { failure.remedy("install iproute2") } else { failure }
    }
}

impl From<cci_sys::SysError> for Failure {
    fn from(error: cci_sys::SysError) -> Failure {
        Failure::new(error.to_string())
    }
}
