//! Compares the gateway with a plain reverse proxy, in one run on one machine. This file starts the
//! processes; the cases, the load, the upstream and the tables have their own files.

mod cases;
pub(crate) mod instructions;
pub(crate) mod load;
mod nginx;
pub(crate) mod process;
mod reader;
mod report;
mod requests;
pub(crate) mod upstream;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::Failure;
use crate::children::Guard;
use crate::ports;
use crate::workspace;

use cases::{CASES, Case};

/// How many rounds, and how long each one is.
#[derive(Clone, Copy)]
struct Effort {
    rounds: u32,
    stretch: Duration,
}

const FULL: Effort = Effort { rounds: 4, stretch: Duration::from_millis(1200) };
const QUICK: Effort = Effort { rounds: 1, stretch: Duration::from_millis(700) };

/// How long a proxy may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything a case needs to run.
struct Bench {
    runtime: Runtime,
    effort: Effort,
    placement: process::Placement,
    binary: PathBuf,
    upstream: SocketAddr,
}

/// A route from the client to the upstream.
struct Route {
    name: &'static str,
    address: SocketAddr,
    /// The proxy's process; none on the direct route.
    process: Option<u32>,
}

/// The two proxies, freshly started, and the routes over them. They end when this is dropped.
struct Proxies {
    /// Direct, nginx, throughline: the tables rely on this order.
    routes: [Route; 3],
    guards: [Guard; 2],
    _folder: TempDir,
}

/// `bench-proxy [--quick] [--list] [--case NAME]...`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    if arguments.contains(&"--list") {
        for case in CASES {
            println!("{:<16} {}", case.name, case.about);
        }
        return Ok(());
    }
    let (effort, cases) = read(arguments)?;
    nginx::install()?;
    let binary = workspace::release_binary()?;
    let placement = process::Placement::choose();
    placement.place_this_process()?;
    let bench = Bench {
        runtime: load::runtime()?,
        effort,
        placement,
        binary,
        upstream: upstream::start()?,
    };
    report::heading(placement, effort.rounds);
    for case in cases {
        // New processes for each case: a heap that has grown would hide the memory of a stream.
        let proxies = bench.start_proxies()?;
        (case.run)(&bench, &proxies.routes).map_err(|failure| {
            let logs: Vec<String> = proxies.guards.iter().map(Guard::last_lines).collect();
            format!("case `{}`: {failure}\n{}", case.name, logs.join("\n"))
        })?;
    }
    Ok(())
}

fn read(arguments: &[&str]) -> Result<(Effort, Vec<&'static Case>), Failure> {
    let (mut effort, mut names) = (FULL, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--quick" => effort = QUICK,
            "--case" => names.push(*rest.next().ok_or("`--case` needs a name")?),
            _ => {
                return Err(format!(
                    "bench-proxy does not take `{argument}`; it takes `--quick`, `--list` and `--case NAME`"
                ));
            }
        }
    }
    if let Some(name) = names.iter().find(|name| !CASES.iter().any(|case| case.name == **name)) {
        return Err(format!("no case `{name}`; `cargo xtask bench-proxy --list` shows them"));
    }
    let chosen = |case: &&Case| names.is_empty() || names.contains(&case.name);
    Ok((effort, CASES.iter().filter(chosen).collect()))
}

impl Bench {
    /// Starts both proxies and sends each route a few requests that are not measured.
    fn start_proxies(&self) -> Result<Proxies, Failure> {
        let folder = tempfile::tempdir()
            .map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let nginx_address = ports::free()?;
        let nginx = nginx::start(nginx_address, self.upstream, self.placement, folder.path())?;
        wait("nginx", &nginx, nginx_address, "/ready")?;
        let gateway_address = ports::free()?;
        let gateway = self.start_gateway(gateway_address, folder.path())?;
        wait("throughline", &gateway, gateway_address, "/readyz")?;
        let routes = [
            Route { name: "direct", address: self.upstream, process: None },
            Route { name: "nginx", address: nginx_address, process: Some(nginx.id()) },
            Route { name: "throughline", address: gateway_address, process: Some(gateway.id()) },
        ];
        for route in &routes {
            self.runtime.block_on(load::warm_up(route.address))?;
        }
        Ok(Proxies { routes, guards: [nginx, gateway], _folder: folder })
    }

    fn start_gateway(&self, address: SocketAddr, folder: &Path) -> Result<Guard, Failure> {
        let config = write_config(address, self.upstream, folder)?;
        let mut serve = self.placement.proxy(&self.binary);
        serve.args(["serve", "--config"]).arg(&config).env_remove("RUST_LOG");
        Guard::start("throughline", &mut serve, folder)
    }
}

/// Writes the configuration of the gateway; returns its path.
fn write_config(
    address: SocketAddr,
    upstream: SocketAddr,
    folder: &Path,
) -> Result<PathBuf, Failure> {
    let config = folder.join("throughline.toml");
    let data = folder.join("data");
    let data = data.display();
    // Nginx writes no access log here, so the gateway writes no line per request either.
    let text = format!(
        r#"listen = "{address}"
data_dir = "{data}"
log = {{ level = "warn" }}

[[backend]]
name = "upstream"
dialect = "anthropic"
base_url = "http://{upstream}"
api_key = "bench"

[route]
default = "upstream"
"#
    );
    std::fs::write(&config, text)
        .map_err(|error| format!("cannot write the gateway's configuration: {error}"))?;
    Ok(config)
}

fn wait(name: &str, process: &Guard, address: SocketAddr, path: &str) -> Result<(), Failure> {
    ports::wait_until_ready(name, address, path, START_TIMEOUT)
        .map_err(|failure| format!("{failure}\n{}", process.last_lines()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_chosen_by_name() {
        let (effort, cases) = read(&["--case", "slow-streams", "--quick"]).unwrap();
        assert_eq!(effort.rounds, QUICK.rounds);
        assert_eq!(cases.iter().map(|case| case.name).collect::<Vec<_>>(), ["slow-streams"]);
        assert_eq!(read(&[]).unwrap().1.len(), CASES.len());
    }

    #[test]
    fn unknown_case_is_refused_with_a_hint() {
        let failure = read(&["--case", "fast"]).err().unwrap();
        assert!(failure.contains("--list"), "{failure}");
        assert!(read(&["--slow"]).is_err());
    }
}
