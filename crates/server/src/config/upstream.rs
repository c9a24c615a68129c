//! How an upstream is spoken to: which variants a dialect has, which of them an address tells, and
//! what of an address is a beginning of the path that the dialect appends. Whether a text is an
//! address at all is for `address`.

use throughline_canonical::Request;
use throughline_codec::dialects::openai_chat::variants::VARIANTS;
use throughline_codec::dialects::{CLIENT, ClientDialect, Target};
use throughline_gateway::backend::is_version;

use super::address::{self, Base};
use super::diagnostic::{Report, Trouble, one_of, shown};
use super::settings::{Backend, Dialect, Word};
use super::suggest;
use super::values::{Located, Section};

/// Gemini models on Vertex.
const VERTEX: &str = "vertex";
/// Servers of Anthropic's dialect that take thinking without a signature.
const UNSIGNED: &str = "unsigned";
/// Gemini's word for an upstream that repeats itself.
const CUMULATIVE: &str = "cumulative";
/// Most of what people run themselves understands what vLLM does.
const NEAR: &str = "vllm";
const ELSEWHERE: &str = "compatible";
/// What Ollama is called, and where it listens unless it is told otherwise.
const OLLAMA: &str = "ollama";
const OLLAMA_PORT: &str = ":11434";

/// A provider that is known by its host.
pub(super) struct Provider {
    pub(super) dialect: Dialect,
    /// The host, with at most one `*` for any letters.
    pub(super) host: &'static str,
    pub(super) variant: &'static str,
    /// What stands between the host and the version.
    prefix: &'static str,
}

const fn chat(host: &'static str, variant: &'static str, prefix: &'static str) -> Provider {
    Provider { dialect: Dialect::OpenAiChat, host, variant, prefix }
}

/// The rows; docs/backends.md shows them.
pub(super) const PROVIDERS: &[Provider] = &[
    chat("api.openai.com", "openai", ""),
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
    Provider {
        dialect: Dialect::Gemini,
        host: "*aiplatform.googleapis.com",
        variant: VERTEX,
        prefix: "",
    },
];

/// The dialects that have variants.
pub(super) fn dialects_with_variants() -> impl Iterator<Item = Dialect> {
    let dialects = Dialect::WORDS.iter().filter_map(|word| Dialect::of(word));
    dialects.filter(|dialect| !variants(*dialect).is_empty())
}

/// The words of `variant` for a dialect.
pub(super) fn variants(dialect: Dialect) -> Vec<&'static str> {
    match dialect {
        Dialect::Anthropic => vec![UNSIGNED],
        Dialect::OpenAiChat => VARIANTS.iter().map(|variant| variant.name).collect(),
        Dialect::OpenAiResponses | Dialect::Ollama => Vec::new(),
        Dialect::Gemini => vec![VERTEX],
        Dialect::Simulator => {
            [Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Gemini, Dialect::Ollama]
                .map(Dialect::word)
                .to_vec()
        }
    }
}

/// A dialect, and which kind of server speaks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spoken {
    pub(super) dialect: Dialect,
    pub(super) variant: String,
}

impl Spoken {
    /// What an address tells of a backend whose `variant` nobody wrote.
    fn told_by(dialect: Dialect, base: Option<&Base>) -> Self {
        let provider = base.and_then(|base| provider(dialect, &base.host));
        let variant = match (dialect, provider) {
            (_, Some(provider)) => provider.variant,
            (Dialect::OpenAiChat, None) => match base {
                Some(base) if base.site.ends_with(OLLAMA_PORT) => OLLAMA,
                Some(base) if !address::is_near(&base.host) => ELSEWHERE,
                _ => NEAR,
            },
            (_, None) => "",
        };
        Self { dialect, variant: variant.to_owned() }
    }

    /// The path the dialect appends to an address.
    fn path(&self) -> String {
        let target = Target { model: "m", variant: &self.variant };
        let written = self.dialect.upstream().write_request(&Request::default(), &target);
        written.value.path
    }

    /// The part of that path that many write into their addresses: `/v1`, `/v1beta/openai`.
    fn version(&self) -> String {
        let path = self.path();
        let name = self.dialect.upstream().name();
        let client = CLIENT.iter().find(|client| client.name() == name);
        let version = client.and_then(|client| path.strip_suffix(&endpoint(*client)));
        version.unwrap_or_default().to_owned()
    }
}

/// Reads `variant` and `cumulative`, and tells by the address what is not written.
pub(super) fn spoken(
    section: Section<'_>,
    dialect: Option<Dialect>,
    base: Option<&Base>,
    report: &mut Report<'_>,
) -> Spoken {
    let written: Option<Located> = section.optional("variant", report);
    let cumulative = section.value("cumulative", report);
    let dialect = match dialect {
        Some(dialect) => dialect,
        // A mistake of its own, and the variant may well fit the dialect that is meant.
        None => return Spoken::told_by(Dialect::default(), None),
    };
    if let (true, Some(node)) = (cumulative, section.node("cumulative"))
        && dialect != Dialect::Gemini
    {
        let message = format!("`cumulative` has no meaning for the dialect `{dialect}`");
        let hint = "it goes with `dialect = \"gemini\"`; take the line out";
        report.add(&node.spot, Trouble::new(message).hint(hint));
    }
    let mut spoken = match written {
        Some(written) if !variants(dialect).contains(&written.text.as_str()) => {
            report.add(&written.spot, no_variant(dialect, &written.text));
            Spoken::told_by(dialect, base)
        }
        // The words of the simulator are dialects; one of them is a server of another, too.
        Some(written) => match Dialect::of(&written.text) {
            Some(simulated) if dialect == Dialect::Simulator => Spoken::told_by(simulated, None),
            _ => Spoken { dialect, variant: written.text },
        },
        None if dialect == Dialect::Simulator => Spoken::told_by(Dialect::Anthropic, None),
        None => Spoken::told_by(dialect, base),
    };
    if cumulative && dialect == Dialect::Gemini {
        let words = [spoken.variant.as_str(), CUMULATIVE];
        spoken.variant = words.join(" ").trim().to_owned();
    }
    spoken
}

fn no_variant(dialect: Dialect, written: &str) -> Trouble {
    let trouble = Trouble::new(format!(
        "`variant` is {}, which the dialect `{dialect}` does not have",
        shown(written)
    ));
    let known = variants(dialect);
    let trouble = if known.is_empty() {
        trouble.expected("no `variant`")
    } else {
        trouble.expected(one_of(known.iter().copied()))
    };
    let owner = dialects_with_variants().find(|owner| variants(*owner).contains(&written));
    match (suggest::nearest(written, known), owner) {
        (Some(word), _) => trouble.meant(Some(word)),
        (None, Some(owner)) => trouble.hint(format!("it goes with `dialect = \"{owner}\"`")),
        (None, None) => trouble.hint("take the line out: `base_url` tells what is needed"),
    }
}

/// An address without what the dialect's path begins with, so that the two can be joined.
pub(super) fn trim(base: &Base, spoken: &Spoken) -> Result<String, Trouble> {
    let found = format!("`base_url` is {}", shown(&base.written));
    let path = without(&base.path, spoken);
    for client in CLIENT {
        let before = before_endpoint(&base.path, *client);
        let (Some(before), Some(dialect)) = (before, Dialect::of(client.name())) else {
            continue;
        };
        if dialect == spoken.dialect {
            let url = join(base, without(before, spoken));
            let hint = format!("the path is appended by the gateway; write `{url}`");
            return Err(Trouble::new(found).hint(hint));
        }
        return Err(other_dialect(&found, base, before, dialect));
    }
    let others = Dialect::WORDS.iter().filter_map(|word| Dialect::of(word));
    for dialect in others.filter(|other| *other != spoken.dialect) {
        let known = provider(dialect, &base.host).is_some();
        let version = Spoken::told_by(dialect, Some(base)).version();
        let theirs = !version.is_empty() && base.path.ends_with(&version);
        // What both dialects have in common tells nothing.
        if known && theirs && path == base.path {
            return Err(other_dialect(&found, base, path, dialect));
        }
    }
    if let (true, Some(provider)) = (path.is_empty(), provider(spoken.dialect, &base.host))
        && !provider.prefix.is_empty()
    {
        let url = format!("{}{}{}", base.site, provider.prefix, spoken.version());
        let dialect = spoken.dialect;
        let message = format!("{found}, where the dialect `{dialect}` is not spoken");
        return Err(Trouble::new(message).hint(format!("write `{url}`")));
    }
    Ok(join(base, path))
}

/// What to say of an address that another dialect has.
fn other_dialect(found: &str, base: &Base, path: &str, dialect: Dialect) -> Trouble {
    let url = join(base, without(path, &Spoken::told_by(dialect, Some(base))));
    Trouble::new(format!("{found}, which is where the dialect `{dialect}` is spoken"))
        .hint(format!("write `dialect = \"{dialect}\"` and `base_url = \"{url}\"`"))
}

fn join(base: &Base, path: &str) -> String {
    format!("{}{path}", base.site)
}

/// A path without the longest end of it that the dialect's own path begins with.
fn without<'a>(path: &'a str, spoken: &Spoken) -> &'a str {
    let appended = spoken.path();
    let starts = appended.rmatch_indices('/').map(|(at, _)| &appended[..at]);
    // Gemini's are known under two versions, of which one is written.
    let newer = spoken.dialect == Dialect::Gemini && appended.starts_with("/v1beta/");
    let older = newer.then_some("/v1");
    starts
        .filter(|start| !start.is_empty())
        .chain(older)
        .find_map(|start| path.strip_suffix(start))
        .unwrap_or(path)
        .trim_end_matches('/')
}

/// What stands before the path of a request, if a path is one of this dialect.
fn before_endpoint<'a>(path: &'a str, client: &dyn ClientDialect) -> Option<&'a str> {
    if let Some(before) = path.strip_suffix(&endpoint(client)) {
        return Some(before);
    }
    // Where a path names the model, it is known by its end; what a path may begin with is open.
    let named = client.operation(path).is_some();
    let at = ["/publishers/", "/models/", "/tunedModels/", "/endpoints/"]
        .iter()
        .find_map(|collection| path.find(collection));
    at.filter(|_| named).map(|at| &path[..at])
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
        fits && provider.dialect == dialect
    })
}

impl Backend {
    /// The path behind the address where an upstream lists its models.
    pub fn models_path(&self) -> String {
        self.spoken.upstream().models_path(&self.variant)
    }
}
