//! Reads the operator's models file. Its mistakes are reported like those of the configuration.

use std::path::Path;

use throughline_gateway::catalog::Catalog;

use super::diagnostic::{Problem, Report};
use super::document::Position;
use super::paths::{self, Environment, FileError, Source};
use super::values::{LocatedText, Section};

/// Reads and checks the file that `models_file` names.
pub(super) fn read(
    top: Section<'_>,
    source: Option<&Source>,
    env: &Environment,
    report: &mut Report<'_>,
) -> Option<Source> {
    let written: LocatedText = top.optional("models_file", report)?;
    let path = match paths::expand("models_file", Path::new(&written.text), env) {
        // A path in a variable is relative to the current directory.
        Ok(path) if matches!(written.position, Position::File(_)) => {
            paths::relative_to_source(source, &path)
        }
        Ok(path) => path,
        Err(problem) => {
            report.add(&written.position, problem);
            return None;
        }
    };
    match Source::load(&path) {
        Ok(file) => {
            check(&file, report);
            Some(file)
        }
        Err(error) => {
            report.add(&written.position, unreadable(&error));
            None
        }
    }
}

fn unreadable(error: &FileError) -> Problem {
    match error {
        FileError::Missing(path) => {
            Problem::new(format!("no such models file: `{}`", path.display()))
                .hint("a relative path is relative to the configuration file")
        }
        FileError::Unreadable { path, cause } => {
            Problem::new(format!("cannot read the models file `{}`: {cause}", path.display()))
        }
    }
}

fn check(file: &Source, report: &mut Report<'_>) {
    let Err(error) = Catalog::with(&file.text) else {
        return;
    };
    let mut own = Report::new(Some(file));
    for mistake in error.mistakes {
        own.add(&Position::File(mistake.span), Problem::new(mistake.message));
    }
    report.add_all(own);
}
