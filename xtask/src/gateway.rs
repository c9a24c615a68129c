//! Starts a gateway with a configuration from the repository.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::children::Guard;
use crate::ports;

/// How long a process may take until it answers.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts the gateway with the configuration in `template`, in which each name of `addresses` is
/// replaced by its address. The gateway keeps its state in `folder`.
pub(crate) fn start(
    binary: &Path,
    template: &Path,
    addresses: &[(&str, SocketAddr)],
    folder: &Path,
) -> Result<(Guard, SocketAddr), Failure> {
    let mut text = std::fs::read_to_string(template)
        .map_err(|error| format!("cannot read `{}`: {error}", template.display()))?;
    for (name, address) in addresses {
        text = text.replace(name, &address.to_string());
    }
    let configuration = folder.join("throughline.toml");
    std::fs::write(&configuration, text)
        .map_err(|error| format!("cannot write `{}`: {error}", configuration.display()))?;
    let address = ports::free()?;
    let mut serve = Command::new(binary);
    serve.args(["serve", "--config"]).arg(&configuration);
    serve.args(["--listen", &address.to_string(), "--data-dir"]);
    serve.arg(folder.join("data"));
    let guard = Guard::start("gateway", &mut serve, folder)?;
    match ports::wait_until_ready("gateway", address, "/readyz", START_TIMEOUT) {
        Ok(()) => Ok((guard, address)),
        Err(failure) => Err(format!("{}\n{failure}", guard.last_lines())),
    }
}
