//! What ends a command early, and what the user can do about it.

use cci_measure::trouble::Trouble;
use std::process::ExitCode;

/// The thing asked for failed.
const EXIT_FAILED: u8 = 1;
/// It was asked for in a way that can't be understood; clap uses the same number.
const EXIT_USAGE: u8 = 2;

/// What a command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a command failed, with a remedy where there is one.
#[derive(Debug)]
pub struct Failure {
    exit: u8,
    message: String,
    remedy: Option<String>,
}

impl Failure {
    /// The thing asked for failed.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { exit: EXIT_FAILED, message: message.into(), remedy: None }
    }

    /// What was asked for makes no sense here.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: EXIT_USAGE, message: message.into(), remedy: None }
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

    /// Message and remedy in one line.
    pub fn line(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{} ({remedy})", self.message),
            None => self.message.clone(),
        }
    }

    /// Tells the user and says how the process ends.
    pub fn report(&self) -> ExitCode {
        eprintln!("cci: {}", self.message);
        if let Some(remedy) = &self.remedy {
            eprintln!("  try: {remedy}");
        }
        ExitCode::from(self.exit)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        Failure { exit: EXIT_FAILED, message: trouble.message, remedy: trouble.remedy }
    }
}
