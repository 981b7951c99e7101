//! Why something could not be measured, and what can be done.

use std::fmt;

/// What fails here returns.
pub type Outcome<T = ()> = Result<T, Trouble>;

/// Why, with a remedy where there is one.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What happened.
    pub message: String,
    /// What the user can do.
    pub remedy: Option<String>,
}

impl Trouble {
    /// Without a remedy.
    pub fn new(message: impl Into<String>) -> Trouble {
        Trouble { message: message.into(), remedy: None }
    }

    /// With what the user can do.
    pub fn remedy(self, remedy: impl Into<String>) -> Trouble {
        Trouble { remedy: Some(remedy.into()), ..self }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.remedy {
            Some(remedy) => write!(out, "{} ({remedy})", self.message),
            None => out.write_str(&self.message),
        }
    }
}

impl std::error::Error for Trouble {}
