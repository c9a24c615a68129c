//! Checks the web page: types, unit tests, size, and its tests in a browser against the built program. The tests
//! are in `web/tests`; screenshots are kept in `target/screenshots`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::command;
use crate::conformance;
use crate::packages::{self, Missing};
use crate::workspace;

/// Limit for one command. The tests in a browser take about three minutes on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// Scripts of `web/package.json`, in the order in which they run.
const SCRIPTS: &[&str] = &["check", "test", "build", "size"];

const CHROMIUM: &str = "/usr/bin/chromium";

/// Runs all checks of the page.
pub(crate) fn run() -> Result<(), Failure> {
    let folder = workspace::root().join("web");
    match packages::node_in_place(&folder) {
        Ok(()) => {}
        Err(Missing::Unreachable(reason)) => {
            println!("the web page is NOT CHECKED: {reason}");
            return Ok(());
        }
        Err(Missing::Failed(failure)) => return Err(failure),
    }
    for script in SCRIPTS {
        command::run_within(npm(&folder).args(["run", script]), TIMEOUT)?;
    }
    if !Path::new(CHROMIUM).exists() {
        packages::debian("chromium")?;
    }
    let mut tests = npm(&folder);
    tests
        .args(["run", "browser"])
        .env("WEB_TEST_BINARY", workspace::test_binary()?)
        .env("CHROMIUM", CHROMIUM)
        .env("SCREENSHOTS", workspace::target_directory()?.join("screenshots"));
    command::run_within(&mut tests, TIMEOUT)
}

fn npm(folder: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(folder);
    conformance::isolate(&mut npm);
    npm
}
