//! The `[[backend]]` tables: reading one, and the checks that need more than one of its keys.

use throughline_codec::text::Recipe;

use super::address;
use super::diagnostic::{Report, Trouble, list, shown};
use super::document::Spot;
use super::mask;
use super::paths::Environment;
use super::routes;
use super::settings::{
    Auth, Backend, Compat, Dialect, Family, OnToolParseError, PASSTHROUGH, ReasoningFormat, Secret,
    Timeouts, Word,
};
use super::suggest;
use super::upstream::{self, Spoken};
use super::values::{Located, Section, secret, unusable_key};

/// The one word of the `auth` key.
#[derive(Debug, Clone, Copy, Default)]
struct Passthrough;

impl Word for Passthrough {
    fn of(word: &str) -> Option<Self> {
        (word == PASSTHROUGH).then_some(Self)
    }
}

/// Reads all backends.
pub(super) fn read(top: Section<'_>, env: &Environment, report: &mut Report<'_>) -> Vec<Backend> {
    let mut names: Vec<Located> = Vec::new();
    let mut backends = Vec::new();
    for section in top.tables("backend") {
        let name: Option<Located> = section.required("name", report);
        if let Some(name) = &name {
            check_name(name, &names, report);
            names.push(name.clone());
        }
        let name = name.map(|name| name.text).unwrap_or_default();
        backends.push(read_one(section, name, env, report));
    }
    backends
}

/// Legal settings that may surprise.
pub(super) fn notes(backends: &[Backend]) -> Vec<String> {
    let keyless = backends.iter().filter(|backend| {
        let remote = backend.base_url.as_deref().is_some_and(|url| !address::is_local(url));
        remote && backend.auth == Auth::None
    });
    let structured = backends.iter().filter(|backend| !backend.has_raw_text());
    keyless
        .map(|backend| format!("backend `{}` is called without a key", backend.name))
        .chain(structured.flat_map(without_effect))
        .collect()
}

/// Settings about raw text, where replies are none.
fn without_effect(backend: &Backend) -> Vec<String> {
    let family = &backend.family;
    let reasoning = backend.reasoning_format;
    let on_error = backend.on_tool_parse_error;
    let settings = [
        (*family != Family::default()).then(|| ("family", family.to_string())),
        (reasoning != ReasoningFormat::default())
            .then(|| ("reasoning_format", reasoning.to_string())),
        (on_error != OnToolParseError::default())
            .then(|| ("on_tool_parse_error", on_error.to_string())),
    ];
    let (name, dialect) = (&backend.name, backend.dialect);
    // Where one dialect has both, which of the two it is depends on the server.
    let server = match backend.spoken {
        Dialect::OpenAiChat => format!(" of the variant `{}`", backend.variant),
        _ => String::new(),
    };
    settings
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            format!("backend `{name}`: `{key} = \"{value}\"` has no effect, as replies of the dialect `{dialect}`{server} are not raw text")
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
    let (spoken, base_url) = address(section, dialect, report);
    let auth = auth(section, env, report);
    let share_caller_key = section.value("share_caller_key", report);
    if let (true, Some(node)) = (share_caller_key, section.node("share_caller_key"))
        && auth != Auth::Passthrough
    {
        let message = "`share_caller_key` is set, but this backend takes no caller's key";
        let hint = format!("it goes with `auth = \"{PASSTHROUGH}\"`");
        report.add(&node.spot, Trouble::new(message).hint(hint));
    }
    let compat = section.table("thinking_compat");
    let mode = compat.required("mode", report);
    let budget = compat.optional("budget", report);
    let timeouts = section.table("timeouts");
    let domain: Option<String> = section.optional("signature_domain", report);
    Backend {
        dialect: dialect.unwrap_or_default(),
        spoken: spoken.dialect,
        variant: spoken.variant,
        base_url,
        auth,
        share_caller_key,
        signature_domain: domain.unwrap_or_else(|| name.clone()),
        models: models(section, report),
        default_model: section.optional("default_model", report),
        family: family(section, report),
        reasoning_format: section.value("reasoning_format", report),
        on_tool_parse_error: section.value("on_tool_parse_error", report),
        thinking_compat: mode.map(|mode| Compat { mode, budget }),
        replay: section.value("replay", report),
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

fn check_name(name: &Located, earlier: &[Located], report: &mut Report<'_>) {
    let letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    if !name.text.bytes().all(letter) {
        let lower: String = name.text.to_ascii_lowercase().replace([' ', '.'], "-");
        let trouble = Trouble::new(format!("`name` is {}", shown(&name.text)))
            .expected("only `a-z`, `0-9`, `_` and `-`");
        let fits = lower.bytes().all(letter);
        report.add(&name.spot, trouble.meant(fits.then_some(lower.as_str())));
    }
    if let Some(first) = earlier.iter().find(|other| other.text == name.text) {
        let message = format!("there are two backends {}", shown(&name.text));
        let hint = format!("the first is at {}", report.refer(&first.spot));
        report.add(&name.spot, Trouble::new(message).expected("a name of its own").hint(hint));
    }
}

/// Where the upstream is, and how it is spoken to: each tells something of the other.
fn address(
    section: Section<'_>,
    dialect: Option<Dialect>,
    report: &mut Report<'_>,
) -> (Spoken, Option<String>) {
    let written: Option<Located> = match dialect {
        Some(Dialect::Simulator) | None => section.optional("base_url", report),
        Some(_) => section.required("base_url", report),
    };
    let base = written.as_ref().and_then(|written| {
        if dialect == Some(Dialect::Simulator) {
            let message = "`base_url` has no meaning for the simulator, which is built in";
            let hint = "take the line out, or name the dialect the upstream speaks";
            report.add(&written.spot, Trouble::new(message).hint(hint));
            return None;
        }
        let base = address::base_url(&written.text);
        base.map_err(|trouble| report.add(&written.spot, trouble)).ok()
    });
    let spoken = upstream::spoken(section, dialect, base.as_ref(), report);
    // Without a dialect nobody knows what would be appended.
    let (Some(written), Some(base), Some(_)) = (written, base, dialect) else {
        return (spoken, None);
    };
    let trimmed = upstream::trim(&base, &spoken);
    let base_url = trimmed.map_err(|trouble| report.add(&written.spot, trouble)).ok();
    (spoken, base_url)
}

fn auth(section: Section<'_>, env: &Environment, report: &mut Report<'_>) -> Auth {
    let key: Option<Secret> = section.optional("api_key", report);
    let variable: Option<Located> = section.optional("api_key_env", report);
    let passthrough: Option<Passthrough> = section.optional("auth", report);
    let from_env = variable.and_then(|variable| key_from(&variable, env, report));

    let written: Vec<(&str, &Spot)> = ["api_key_env", "api_key", "auth"]
        .into_iter()
        .filter_map(|key| Some((key, &section.node(key)?.spot)))
        .collect();
    if let [(first, _), others @ ..] = written.as_slice() {
        for (other, spot) in others {
            let message = format!("`{other}` stands beside `{first}`");
            let expected = "only one of `api_key_env`, `api_key` and `auth`";
            report.add(spot, Trouble::new(message).expected(expected));
        }
    }
    match (key.or(from_env), passthrough) {
        (_, Some(Passthrough)) => Auth::Passthrough,
        (Some(key), None) => Auth::Key(key),
        (None, None) => Auth::None,
    }
}

fn key_from(variable: &Located, env: &Environment, report: &mut Report<'_>) -> Option<Secret> {
    let name = variable.text.as_str();
    if !mask::is_variable_name(name) {
        // Most likely the key itself; it must not appear in the message.
        let trouble = Trouble::new("`api_key_env` is not the name of a variable")
            .expected(r#"a name, as in "ANTHROPIC_API_KEY""#)
            .hint("a key itself goes into `api_key`");
        report.add(&variable.spot, trouble);
        return None;
    }
    let Some(value) = env.get(name) else {
        let known = env.keys().map(String::as_str).filter(|name| name.contains("KEY"));
        let trouble = Trouble::new(format!("environment variable `{name}` is not set"));
        let trouble = match suggest::nearest(name, known) {
            Some(word) => trouble.meant(Some(word)),
            None => trouble.hint("set it where the gateway is started"),
        };
        report.add(&variable.spot, trouble);
        return None;
    };
    let found = secret(value);
    if found.is_none() {
        report.add(&variable.spot, unusable_key(&format!("`{name}`")));
    }
    found
}

fn models(section: Section<'_>, report: &mut Report<'_>) -> Vec<(String, String)> {
    let pairs: Vec<(Located, Located)> = section.value("models", report);
    for (pattern, name) in &pairs {
        routes::check_pattern(pattern, report);
        if name.text.contains('*') {
            let message = format!("{} is no model's name", shown(&name.text));
            report.add(&name.spot, Trouble::new(message).expected("a name without `*`"));
        }
    }
    pairs.into_iter().map(|(pattern, name)| (pattern.text, name.text)).collect()
}

fn family(section: Section<'_>, report: &mut Report<'_>) -> Family {
    let Some(written) = section.optional::<Located>("family", report) else {
        return Family::default();
    };
    let name = written.text.trim();
    if name.eq_ignore_ascii_case(Family::AUTO) {
        return Family::Auto;
    }
    if name.eq_ignore_ascii_case(Family::NONE) {
        return Family::None;
    }
    if let Err(unknown) = Recipe::family(name) {
        let words = [Family::AUTO, Family::NONE];
        let meant = unknown.nearest.or_else(|| suggest::nearest(name, words));
        let meant = meant.map_or(String::new(), |word| format!("did you mean `{word}`? "));
        let trouble = Trouble::new(format!("no family is called {}", shown(name)))
            .expected(format!("{} or a family's name", list(words)))
            .hint(format!("{meant}the families are {}", list(unknown.known)));
        report.add(&written.spot, trouble);
    }
    Family::Named(name.to_owned())
}
