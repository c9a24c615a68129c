//! The `[[backend]]` tables: reading one, and the checks that need more than one of its keys.

use throughline_codec::text::{OnError, ReasoningFormat, Recipe};
use throughline_gateway::backend::{Auth, Compat, RawText, Timeouts};

use super::address;
use super::config_enum::ConfigEnum;
use super::diagnostic::{Problem, Report, list, shown};
use super::document::Position;
use super::mask;
use super::paths::Environment;
use super::routes;
use super::settings::{Backend, Dialect, PASSTHROUGH, Passthrough};
use super::suggest;
use super::upstream::{self, WireFormat};
use super::values::{ApiKey, LocatedText, Section, api_key, unusable_key};

/// `family`: derived from the model's name.
const AUTO: &str = "auto";
/// `family`: raw text is not parsed.
const NONE: &str = "none";

/// Reads all backends.
pub(super) fn read(top: Section<'_>, env: &Environment, report: &mut Report<'_>) -> Vec<Backend> {
    let mut names: Vec<LocatedText> = Vec::new();
    let mut backends = Vec::new();
    for section in top.tables("backend") {
        let name: Option<LocatedText> = section.required("name", report);
        if let Some(name) = &name {
            check_name("backends", name, &names, report);
            names.push(name.clone());
        }
        let name = name.map(|name| name.text).unwrap_or_default();
        backends.push(read_one(section, name, env, report));
    }
    backends
}

/// Notes about valid settings that may surprise.
pub(super) fn notes(backends: &[Backend], env: &Environment) -> Vec<String> {
    let keyless = backends.iter().filter(|backend| {
        let remote = backend.base_url.as_deref().is_some_and(|url| !address::is_local(url));
        remote && backend.auth == Auth::None
    });
    let structured = backends.iter().filter(|backend| !backend.has_raw_text());
    let off = backends.iter().filter_map(|backend| match &backend.auth {
        Auth::Missing(variable) => {
            let nearest =
                nearest_key(variable, env).map(|name| format!(" (did you mean `{name}`?)"));
            Some(format!(
                "backend `{}` is off: environment variable `{variable}` is not set{}",
                backend.name,
                nearest.unwrap_or_default()
            ))
        }
        _ => None,
    });
    keyless
        .map(|backend| format!("backend `{}` is called without a key", backend.name))
        .chain(off)
        .chain(structured.flat_map(unused_settings))
        .collect()
}

/// Notes about raw-text settings of a backend whose replies are structured.
fn unused_settings(backend: &Backend) -> Vec<String> {
    let RawText { family, reasoning_format, on_error } = &backend.raw_text;
    let settings = [
        family.as_deref().map(|family| ("family", family)),
        (*reasoning_format != ReasoningFormat::Split)
            .then(|| ("reasoning_format", reasoning_format.name())),
        (*on_error != OnError::Error).then(|| ("on_tool_parse_error", on_error.name())),
    ];
    let (name, dialect) = (&backend.name, backend.dialect);
    // Some chat servers send raw text and some do not.
    let server = match backend.variant.as_str() {
        "" => String::new(),
        variant => format!(" of the variant `{variant}`"),
    };
    settings
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            format!("backend `{name}`: `{key} = \"{value}\"` has no effect: replies of the dialect `{dialect}`{server} are not raw text")
        })
        .collect()
}

fn read_one(
    section: Section<'_>,
    name: String,
    env: &Environment,
    report: &mut Report<'_>,
) -> Backend {
    let dialect: Option<Dialect> = section.required("dialect", report);
    let (format, base_url) = address(section, dialect, report);
    let auth = auth(section, env, report);
    let share_caller_key = section.value("share_caller_key", report);
    if let (true, Some(node)) = (share_caller_key, section.node("share_caller_key"))
        && auth != Auth::Passthrough
    {
        let message = "`share_caller_key` is set, but this backend does not use the caller's key";
        let hint = format!("use it with `auth = \"{PASSTHROUGH}\"`");
        report.add(&node.position, Problem::new(message).hint(hint));
    }
    let compat = section.table("thinking_compat");
    let mut thinking_compat: Option<Compat> = compat.required("mode", report);
    let compat_budget = compat.optional("budget", report);
    if let Some(Compat::Budget(budget)) = &mut thinking_compat {
        *budget = compat_budget;
    }
    let timeouts = section.table("timeouts");
    let domain: Option<String> = section.optional("signature_domain", report);
    Backend {
        dialect: dialect.unwrap_or(Dialect::DEFAULT),
        wire_dialect: format.dialect,
        variant: format.variant,
        base_url,
        auth,
        share_caller_key,
        signature_domain: domain.unwrap_or_else(|| name.clone()),
        models: models(section, report),
        default_model: section.optional("default_model", report),
        raw_text: RawText {
            family: family(section, report),
            reasoning_format: section.choice("reasoning_format", report),
            on_error: section.choice("on_tool_parse_error", report),
        },
        thinking_compat,
        strict_settings: section.value("strict_settings", report),
        replay: section.choice("replay", report),
        cache: section.choice("cache", report),
        pricing: section.choice("price", report),
        retries: section.value("retries", report),
        timeouts: Timeouts {
            connect: timeouts.value("connect", report),
            first_byte_for_whole: timeouts
                .optional::<std::time::Duration>("first_byte", &mut Report::new(None))
                .is_some(),
            first_byte: timeouts.value("first_byte", report),
            idle: timeouts.value("idle", report),
            total: timeouts.value("total", report),
        },
        name,
    }
}

/// Checks the name of a table in a list. `what` says what the tables are.
pub(super) fn check_name(
    what: &str,
    name: &LocatedText,
    earlier: &[LocatedText],
    report: &mut Report<'_>,
) {
    let letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    if !name.text.bytes().all(letter) {
        let lower: String = name.text.to_ascii_lowercase().replace([' ', '.'], "-");
        let problem = Problem::new(format!("`name` is {}", shown(&name.text)))
            .expected("only `a-z`, `0-9`, `_` and `-`");
        let fits = lower.bytes().all(letter);
        report.add(&name.position, problem.did_you_mean(fits.then_some(lower.as_str())));
    }
    if let Some(first) = earlier.iter().find(|other| other.text == name.text) {
        let message = format!("two {what} are named {}", shown(&name.text));
        let hint = format!("the first is at {}", report.refer(&first.position));
        report.add(&name.position, Problem::new(message).expected("a unique name").hint(hint));
    }
}

/// Reads address and wire format together: the address decides the variant, and the wire format
/// decides which part of the address is repeated by the dialect's path.
fn address(
    section: Section<'_>,
    dialect: Option<Dialect>,
    report: &mut Report<'_>,
) -> (WireFormat, Option<String>) {
    let written: Option<LocatedText> = match dialect {
        Some(Dialect::SIMULATOR) | None => section.optional("base_url", report),
        Some(_) => section.required("base_url", report),
    };
    let base = written.as_ref().and_then(|written| {
        if dialect == Some(Dialect::SIMULATOR) {
            let message = "`base_url` has no effect on the simulator, which is built in";
            let hint = "remove the line, or set `dialect` to the API of the upstream";
            report.add(&written.position, Problem::new(message).hint(hint));
            return None;
        }
        let base = address::base_url(&written.text);
        base.map_err(|problem| report.add(&written.position, problem)).ok()
    });
    let format = upstream::read_wire_format(section, dialect, base.as_ref(), report);
    // Without a dialect, the appended path is unknown.
    let (Some(written), Some(base), Some(_)) = (written, base, dialect) else {
        return (format, None);
    };
    let trimmed = upstream::trim(&base, &format);
    let base_url = trimmed.map_err(|problem| report.add(&written.position, problem)).ok();
    (format, base_url)
}

fn auth(section: Section<'_>, env: &Environment, report: &mut Report<'_>) -> Auth {
    let key: Option<ApiKey> = section.optional("api_key", report);
    let variable: Option<LocatedText> = section.optional("api_key_env", report);
    let passthrough: Option<Passthrough> = section.optional("auth", report);
    let from_env = variable.map(|variable| key_from(&variable, env, report));

    let written: Vec<(&str, &Position)> = ["api_key_env", "api_key", "auth"]
        .into_iter()
        .filter_map(|key| Some((key, &section.node(key)?.position)))
        .collect();
    if let [(first, _), others @ ..] = written.as_slice() {
        for (other, position) in others {
            let message = format!("`{other}` is set together with `{first}`");
            let expected = "only one of `api_key_env`, `api_key` and `auth`";
            report.add(position, Problem::new(message).expected(expected));
        }
    }
    match (key, from_env, passthrough) {
        (_, _, Some(Passthrough)) => Auth::Passthrough,
        (Some(ApiKey(key)), _, None) => Auth::Key(key),
        (None, Some(auth), None) => auth,
        (None, None, None) => Auth::None,
    }
}

/// Reads the key from the variable that `api_key_env` names.
fn key_from(variable: &LocatedText, env: &Environment, report: &mut Report<'_>) -> Auth {
    let name = variable.text.as_str();
    if !mask::is_variable_name(name) {
        // Probably the key itself, which no message may show.
        let problem = Problem::new("`api_key_env` is not the name of a variable")
            .expected(r#"a name, as in "ANTHROPIC_API_KEY""#)
            .hint("to write the key itself, use `api_key`");
        report.add(&variable.position, problem);
        return Auth::None;
    }
    let Some(value) = env.get(name) else {
        return Auth::Missing(name.to_owned());
    };
    match api_key(value) {
        Some(ApiKey(key)) => Auth::Key(key),
        None => {
            report.add(&variable.position, unusable_key(&format!("`{name}`")));
            Auth::None
        }
    }
}

/// Reports a missing key of the default backend. Any other backend without its key is only off.
pub(super) fn check_default(
    default: &str,
    backends: &[Backend],
    top: Section<'_>,
    env: &Environment,
    report: &mut Report<'_>,
) {
    for (backend, section) in backends.iter().zip(top.tables("backend")) {
        if let Auth::Missing(name) = &backend.auth
            && let Some(node) = section.node("api_key_env")
            && backend.name == default
        {
            report.add(&node.position, missing_key(name, env));
        }
    }
}

fn missing_key(name: &str, env: &Environment) -> Problem {
    let problem = Problem::new(format!("environment variable `{name}` is not set"));
    match nearest_key(name, env) {
        Some(nearest) => problem.did_you_mean(Some(nearest)),
        None => problem.hint("set it in the environment of the gateway, or make another backend the default with `route.default`"),
    }
}

/// The variable with the most similar name that may hold a key.
fn nearest_key<'e>(name: &str, env: &'e Environment) -> Option<&'e str> {
    let known = env.keys().map(String::as_str).filter(|name| name.contains("KEY"));
    suggest::nearest(name, known)
}

fn models(section: Section<'_>, report: &mut Report<'_>) -> Vec<(String, String)> {
    let pairs: Vec<(LocatedText, LocatedText)> = section.value("models", report);
    for (pattern, name) in &pairs {
        routes::check_pattern(pattern, report);
        if name.text.contains('*') {
            let message = format!("{} is not the name of a model", shown(&name.text));
            report.add(&name.position, Problem::new(message).expected("a name without `*`"));
        }
    }
    pairs.into_iter().map(|(pattern, name)| (pattern.text, name.text)).collect()
}

/// Reads `family`, in the form of [`RawText::family`].
fn family(section: Section<'_>, report: &mut Report<'_>) -> Option<String> {
    let written: LocatedText = section.optional("family", report)?;
    let name = written.text.trim();
    if name.eq_ignore_ascii_case(AUTO) {
        return None;
    }
    if name.eq_ignore_ascii_case(NONE) {
        return Some(NONE.to_owned());
    }
    if let Err(unknown) = Recipe::family(name) {
        let nearest = unknown.nearest.or_else(|| suggest::nearest(name, [AUTO, NONE]));
        let nearest = nearest.map_or(String::new(), |name| format!("did you mean `{name}`? "));
        let problem = Problem::new(format!("unknown family {}", shown(name)))
            .expected(format!("{} or the name of a family", list([AUTO, NONE])))
            .hint(format!("{nearest}the families are {}", list(unknown.known)));
        report.add(&written.position, problem);
    }
    Some(name.to_owned())
}
