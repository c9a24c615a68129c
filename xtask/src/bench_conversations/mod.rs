//! Measures stored conversations on SQLite and Postgres: the stores alone (`stores`, which runs the
//! bench of `crates/backends`), and the server in front of them (`server`), also with sealed projects
//! (`sealed`).

mod postgres;
mod sealed;
mod server;
mod stores;

use std::path::Path;
use std::time::Duration;

use crate::Failure;
use crate::bench_proxy::{load, upstream};
use crate::packages;
use crate::workspace;

use postgres::Postgres;
pub(crate) use server::call;

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    /// Nodes of the branches that are measured, one after the other.
    sizes: &'static [usize],
    /// Runs at the same time.
    runs: usize,
    /// How long those are watched.
    stretch: Duration,
    /// How often a request is sent.
    requests: u32,
}

const FULL: Effort = Effort {
    sizes: &[1_000, 10_000, 100_000],
    runs: 500,
    stretch: Duration::from_secs(10),
    requests: 50,
};
const QUICK: Effort =
    Effort { sizes: &[1_000, 10_000], runs: 100, stretch: Duration::from_secs(3), requests: 10 };

/// Databases of the Postgres server: one for the stores alone, one for the server.
const DATABASES: usize = 2;

/// `bench-conversations [--quick | --sealed]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (effort, only_sealed) = match arguments {
        [] => (FULL, false),
        ["--quick"] => (QUICK, false),
        ["--sealed"] => (FULL, true),
        _ => return Err("bench-conversations takes only `--quick` or `--sealed`".to_owned()),
    };
    packages::postgres()?;
    let binary = workspace::release_binary()?;
    let postgres = Postgres::start(DATABASES)?;
    let [for_stores, for_server] = &postgres.databases[..] else {
        return Err("the Postgres server did not name its databases".to_owned());
    };
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\n## Stored conversations\n\n{cores} cores, Postgres without `fsync`.\n");
    let bench = server::Bench {
        binary,
        effort,
        runtime: load::runtime()?,
        upstream: upstream::start()?,
        postgres: &postgres,
    };
    println!("{}", sealed::table(&bench.measure_sealed()?));
    if only_sealed {
        return Ok(());
    }
    let file = folder.path().join("store.db");
    println!("{}", stores::table(&stores::measure(effort.sizes, &[&text(&file)?, for_stores])?));
    let (mut many, mut requests) = (Vec::new(), Vec::new());
    for database in [None, Some(for_server.as_str())] {
        let measured = bench.measure(database)?;
        many.push(measured.many_runs);
        requests.extend(measured.requests);
    }
    println!("{}", server::table_of_runs(&many, cores));
    println!("{}", server::table_of_requests(&requests));
    Ok(())
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| format!("`{}` is not text", path.display()))
}
