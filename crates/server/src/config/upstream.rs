//! The wire format of an upstream: which variants a dialect has, which variant follows from an address,
//! and which part of an address repeats the path that the dialect appends. `address` checks URLs.

use throughline_canonical::Request;
use throughline_codec::dialects::{
    CLIENT, ClientDialect, Target, UPSTREAM, gemini, openai_chat, openai_responses,
};
use throughline_gateway::backend::is_version;

use super::address::{self, Base};
use super::config_enum::ConfigEnum;
use super::diagnostic::{Problem, Report, one_of, shown};
use super::settings::Dialect;
use super::suggest;
use super::values::{LocatedText, Section};

/// Gemini models on Vertex.
const VERTEX: &str = "vertex";
/// Servers whose chunks repeat everything before them. A key of its own adds it to the variant.
const CUMULATIVE: &str = "cumulative";
/// The variant for servers in a private network: most of them understand what vLLM does.
const PRIVATE: &str = "vllm";
/// The variant for unknown public servers.
const PUBLIC: &str = "compatible";
/// Ollama's variant, and the port it listens on by default.
const OLLAMA: &str = "ollama";
const OLLAMA_PORT: &str = ":11434";

/// A provider recognized by its host.
pub(super) struct Provider {
    pub(super) dialect: &'static str,
    /// The host, with at most one `*` for any characters.
    pub(super) host: &'static str,
    pub(super) variant: &'static str,
    /// The path between host and version.
    prefix: &'static str,
}

const fn chat(host: &'static str, variant: &'static str, prefix: &'static str) -> Provider {
    Provider { dialect: openai_chat::NAME, host, variant, prefix }
}

/// A provider that is known to keep responses.
const fn responses(host: &'static str, prefix: &'static str) -> Provider {
    Provider { dialect: openai_responses::NAME, host, variant: "openai", prefix }
}

/// The known providers; docs/backends.md shows them.
pub(super) const PROVIDERS: &[Provider] = &[
    chat("api.openai.com", "openai", ""),
    chat("*.api.openai.com", "openai", ""),
    chat("*.openai.azure.com", "openai", "/openai"),
    chat("api.deepseek.com", "deepseek-v4", ""),
    chat("openrouter.ai", "openrouter", "/api"),
    chat("api.x.ai", "xai", ""),
    chat("api.groq.com", "groq", "/openai"),
    chat("api.mistral.ai", "mistral", ""),
    chat("dashscope*.aliyuncs.com", "qwen", "/compatible-mode"),
    chat("api.z.ai", "glm", "/api/paas"),
    chat("open.bigmodel.cn", "glm", "/api/paas"),
    chat("generativelanguage.googleapis.com", "google", ""),
    chat("ollama.com", OLLAMA, ""),
    responses("api.openai.com", ""),
    responses("*.api.openai.com", ""),
    responses("*.openai.azure.com", "/openai"),
    responses("*.services.ai.azure.com", "/openai"),
    responses("api.x.ai", ""),
    Provider {
        dialect: gemini::NAME,
        host: "*aiplatform.googleapis.com",
        variant: VERTEX,
        prefix: "",
    },
];

/// The dialects that have variants.
pub(super) fn dialects_with_variants() -> impl Iterator<Item = Dialect> {
    all_dialects().filter(|dialect| !variants(*dialect).is_empty())
}

fn all_dialects() -> impl Iterator<Item = Dialect> {
    Dialect::names().into_iter().filter_map(Dialect::from_name)
}

/// The values of `variant` for a dialect.
pub(super) fn variants(dialect: Dialect) -> Vec<&'static str> {
    if dialect == Dialect::SIMULATOR {
        return UPSTREAM.iter().skip(1).map(|dialect| dialect.name()).collect();
    }
    let names = dialect.upstream().profiles().iter().map(|profile| profile.name);
    names.filter(|name| !name.is_empty() && !name.ends_with(CUMULATIVE)).collect()
}

/// Whether some servers of a dialect repeat everything in each chunk.
fn may_be_cumulative(dialect: Dialect) -> bool {
    dialect != Dialect::SIMULATOR
        && dialect.upstream().profiles().iter().any(|profile| profile.name == CUMULATIVE)
}

/// A dialect, and the variant of the server that speaks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WireFormat {
    pub(super) dialect: Dialect,
    pub(super) variant: String,
}

impl WireFormat {
    /// The wire format of a backend without `variant`, derived from its address.
    fn from_address(dialect: Dialect, base: Option<&Base>) -> Self {
        let provider = base.and_then(|base| provider(dialect, &base.host));
        let variant = match (dialect.name(), provider) {
            (_, Some(provider)) => provider.variant,
            (openai_chat::NAME, None) => match base {
                Some(base) if base.site.ends_with(OLLAMA_PORT) => OLLAMA,
                Some(base) if !address::is_private(&base.host) => PUBLIC,
                _ => PRIVATE,
            },
            (_, None) => "",
        };
        Self { dialect, variant: variant.to_owned() }
    }

    /// The path that the dialect appends to an address.
    fn path(&self) -> String {
        let dialect = self.dialect.upstream();
        let target = Target { model: "m", profile: dialect.profile(&self.variant) };
        let written = dialect.write_request(&Request::default(), &target);
        written.value.path
    }

    /// The start of that path that many base URLs already contain: `/v1`, `/v1beta/openai`.
    fn version(&self) -> String {
        let path = self.path();
        let name = self.dialect.upstream().name();
        let client = CLIENT.iter().find(|client| client.name() == name);
        let version = client.and_then(|client| path.strip_suffix(&endpoint(*client)));
        version.unwrap_or_default().to_owned()
    }
}

/// Reads `variant` and `cumulative`; a missing variant follows from the address.
pub(super) fn read_wire_format(
    section: Section<'_>,
    dialect: Option<Dialect>,
    base: Option<&Base>,
    report: &mut Report<'_>,
) -> WireFormat {
    let written: Option<LocatedText> = section.optional("variant", report);
    let cumulative = section.value("cumulative", report);
    let dialect = match dialect {
        Some(dialect) => dialect,
        // The missing dialect is reported; the variant may fit the dialect that was intended.
        None => return WireFormat::from_address(Dialect::DEFAULT, None),
    };
    if let (true, Some(node)) = (cumulative, section.node("cumulative"))
        && !may_be_cumulative(dialect)
    {
        let message = format!("`cumulative` has no effect on the dialect `{dialect}`");
        let hint = "use it with `dialect = \"gemini\"`, or remove the line";
        report.add(&node.position, Problem::new(message).hint(hint));
    }
    let mut format = match written {
        Some(written) if !variants(dialect).contains(&written.text.as_str()) => {
            report.add(&written.position, unknown_variant(dialect, &written.text));
            WireFormat::from_address(dialect, base)
        }
        // The simulator's variants are names of dialects.
        Some(written) => match Dialect::from_name(&written.text) {
            Some(simulated) if dialect == Dialect::SIMULATOR => {
                WireFormat::from_address(simulated, None)
            }
            _ => WireFormat { dialect, variant: written.text },
        },
        None if dialect == Dialect::SIMULATOR => WireFormat::from_address(Dialect::DEFAULT, None),
        None => WireFormat::from_address(dialect, base),
    };
    if cumulative && may_be_cumulative(dialect) {
        let flags = [format.variant.as_str(), CUMULATIVE];
        format.variant = flags.join(" ").trim().to_owned();
    }
    format
}

fn unknown_variant(dialect: Dialect, written: &str) -> Problem {
    let problem = Problem::new(format!(
        "`variant` is {}, which is not a variant of the dialect `{dialect}`",
        shown(written)
    ));
    let known = variants(dialect);
    let problem = if known.is_empty() {
        problem.expected("no `variant`")
    } else {
        problem.expected(one_of(known.iter().copied()))
    };
    let owner = dialects_with_variants().find(|owner| variants(*owner).contains(&written));
    match (suggest::nearest(written, known), owner) {
        (Some(nearest), _) => problem.did_you_mean(Some(nearest)),
        (None, Some(owner)) => problem.hint(format!("it is a variant of `dialect = \"{owner}\"`")),
        (None, None) => problem.hint("remove the line: the variant follows from `base_url`"),
    }
}

/// Removes from an address what the dialect's path repeats, so that the two can be joined.
pub(super) fn trim(base: &Base, format: &WireFormat) -> Result<String, Problem> {
    let found = format!("`base_url` is {}", shown(&base.written));
    let path = without_repeated(&base.path, format);
    for client in CLIENT {
        let before = before_endpoint(&base.path, *client);
        let (Some(before), Some(dialect)) = (before, Dialect::from_name(client.name())) else {
            continue;
        };
        if dialect == format.dialect {
            let url = join(base, without_repeated(before, format));
            let hint = format!("the gateway appends the path itself; write `{url}`");
            return Err(Problem::new(found).hint(hint));
        }
        return Err(other_dialect(&found, base, before, dialect));
    }
    for dialect in all_dialects().filter(|other| *other != format.dialect) {
        let known = provider(dialect, &base.host).is_some();
        let version = WireFormat::from_address(dialect, Some(base)).version();
        let theirs = !version.is_empty() && base.path.ends_with(&version);
        // A version that both dialects use decides nothing.
        if known && theirs && path == base.path {
            return Err(other_dialect(&found, base, path, dialect));
        }
    }
    if let (true, Some(provider)) = (path.is_empty(), provider(format.dialect, &base.host))
        && !provider.prefix.is_empty()
    {
        let url = format!("{}{}{}", base.site, provider.prefix, format.version());
        let dialect = format.dialect;
        let message = format!("{found}, but the dialect `{dialect}` has another path there");
        return Err(Problem::new(message).hint(format!("write `{url}`")));
    }
    Ok(join(base, path))
}

/// The problem of an address that belongs to another dialect.
fn other_dialect(found: &str, base: &Base, path: &str, dialect: Dialect) -> Problem {
    let url = join(base, without_repeated(path, &WireFormat::from_address(dialect, Some(base))));
    Problem::new(format!("{found}, which is an address of the dialect `{dialect}`"))
        .hint(format!("write `dialect = \"{dialect}\"` and `base_url = \"{url}\"`"))
}

fn join(base: &Base, path: &str) -> String {
    format!("{}{path}", base.site)
}

/// Removes the longest end of a path that the dialect's own path starts with.
fn without_repeated<'a>(path: &'a str, format: &WireFormat) -> &'a str {
    let appended = format.path();
    let starts = appended.rmatch_indices('/').map(|(at, _)| &appended[..at]);
    // Gemini has two versions; the dialect's path uses the newer one.
    let newer = format.dialect.name() == gemini::NAME && appended.starts_with("/v1beta/");
    let older = newer.then_some("/v1");
    starts
        .filter(|start| !start.is_empty())
        .chain(older)
        .find_map(|start| path.strip_suffix(start))
        .unwrap_or(path)
        .trim_end_matches('/')
}

/// The part of a path before the dialect's endpoint, if the path ends in one.
fn before_endpoint<'a>(path: &'a str, client: &dyn ClientDialect) -> Option<&'a str> {
    if let Some(before) = path.strip_suffix(&endpoint(client)) {
        return Some(before);
    }
    // A path that names the model is recognized by its collection, whatever comes before it.
    let is_endpoint = client.operation(path).is_some();
    let at = ["/publishers/", "/models/", "/tunedModels/", "/endpoints/"]
        .iter()
        .find_map(|collection| path.find(collection));
    at.filter(|_| is_endpoint).map(|at| &path[..at])
}

/// The path of a request without its version: `/chat/completions`.
fn endpoint(client: &dyn ClientDialect) -> String {
    let path = client.path_for("m");
    let Some((first, rest)) = path.get(1..).and_then(|path| path.split_once('/')) else {
        return String::new();
    };
    match is_version(first) {
        true => format!("/{rest}"),
        false => path,
    }
}

fn provider(dialect: Dialect, host: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| {
        let fits = match provider.host.split_once('*') {
            Some((start, end)) => host.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
            None => host == provider.host,
        };
        fits && provider.dialect == dialect.name()
    })
}
