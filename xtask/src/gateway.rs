//! A gateway beside us, told what a file in the repository says.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::children::Guard;
use crate::ports;

/// For a process to answer.
pub(crate) const START: Duration = Duration::from_secs(20);

/// Starts the gateway with the configuration in `template`, where each word of
/// `addresses` stands for the address beside it; its state is in `folder`.
pub(crate) fn start(
    binary: &Path,
    template: &Path,
    addresses: &[(&str, SocketAddr)],
    folder: &Path,
) -> Result<(Guard, SocketAddr), Failure> {
    let mut text = std::fs::read_to_string(template)
        .map_err(|error| format!("cannot read `{}`: {error}", template.display()))?;
    for (word, address) in addresses {
        text = text.replace(word, &address.to_string());
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
    match ports::wait_until_ready("gateway", address, "/readyz", START) {
        Ok(()) => Ok((guard, address)),
        Err(failure) => Err(format!("{}\n{failure}", guard.last_words())),
    }
}
