//! Runs a command on several operands: reports the error of one and continues with the next.

use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Errors of the operands so far.
pub(crate) struct OperandErrors {
    command: &'static str,
    worst: u8,
}

impl OperandErrors {
    pub(crate) fn new(command: &'static str) -> OperandErrors {
        OperandErrors { command, worst: 0 }
    }

    /// Tells a failure; only what makes all that follows fail, too, is passed on.
    pub(crate) fn settle(&mut self, result: Result) -> Result {
        if let Some(untold) = self.add(result)? {
            stdio::print_error(self.command, &untold);
        }
        Ok(())
    }

    /// The same for who does the telling.
    pub(crate) fn add(&mut self, result: Result) -> Result<Option<Error>> {
        let Err(error) = result else { return Ok(None) };
        match error {
            // The exit code of an error that was already printed.
            Error::Pipe if self.worst > 0 => Err(Error::Reported(self.worst)),
            Error::Pipe => Err(Error::Pipe),
            error if error.is_lost() || error.is_full() => Err(error),
            // It was told.
            Error::Reported(code) => {
                self.worst = self.worst.max(code);
                Ok(None)
            }
            error => {
                self.worst = self.worst.max(error.code());
                Ok(Some(error))
            }
        }
    }

    /// The end: the worst there was.
    pub(crate) fn finish(&self) -> Result {
        if self.worst == 0 { Ok(()) } else { Err(Error::Reported(self.worst)) }
    }
}
