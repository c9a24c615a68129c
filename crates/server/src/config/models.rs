//! What the operator says of models: a file of its own, whose mistakes are told like this one's.

use std::path::Path;

use throughline_gateway::catalog::Catalog;

use super::diagnostic::{Report, Trouble};
use super::document::Spot;
use super::paths::{self, Environment, FileError, Source};
use super::values::{Located, Section};

/// Reads and checks the file that `models_file` names.
pub(super) fn read(
    top: Section<'_>,
    source: Option<&Source>,
    env: &Environment,
    report: &mut Report<'_>,
) -> Option<Source> {
    let written: Located = top.optional("models_file", report)?;
    let path = match paths::expand("models_file", Path::new(&written.text), env) {
        // A variable is nowhere, so a path in it is relative to the current directory.
        Ok(path) if matches!(written.spot, Spot::File(_)) => paths::beside(source, &path),
        Ok(path) => path,
        Err(trouble) => {
            report.add(&written.spot, trouble);
            return None;
        }
    };
    match Source::load(&path) {
        Ok(file) => {
            check(&file, report);
            Some(file)
        }
        Err(error) => {
            report.add(&written.spot, unreadable(&error));
            None
        }
    }
}

fn unreadable(error: &FileError) -> Trouble {
    match error {
        FileError::Missing(path) => {
            Trouble::new(format!("there is no models file `{}`", path.display()))
                .hint("a relative path is relative to the file it stands in")
        }
        FileError::Unreadable { path, cause } => {
            Trouble::new(format!("cannot read the models file `{}`: {cause}", path.display()))
        }
    }
}

fn check(file: &Source, report: &mut Report<'_>) {
    let Err(error) = Catalog::with(&file.text) else {
        return;
    };
    let mut own = Report::new(Some(file));
    for mistake in error.mistakes {
        own.add(&Spot::File(mistake.span), Trouble::new(mistake.message));
    }
    report.add_all(own);
}
