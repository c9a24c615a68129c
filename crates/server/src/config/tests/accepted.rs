//! Valid configurations and their values.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use throughline_codec::pacing::{Pace, Pacing};
use throughline_conversations::front_doors::RunSettings;
use throughline_conversations::projects::{PreviousResponse, ProjectMode};
use throughline_conversations::users::{RegistrationRule, UserSettings};

use super::*;
use crate::config::RedisUrl;
use crate::config::settings::ProjectDefaults;

#[test]
fn empty_file_has_all_defaults() {
    let config = good("");
    let expected = Config {
        listen: "127.0.0.1:8484".to_owned(),
        data_dir: PathBuf::from("/users/ada/.local/share/throughline"),
        log: Log { level: Level::Info, format: Format::Text },
        keep_alive: Duration::from_secs(15),
        shutdown_grace: Duration::from_secs(25),
        allowed_hosts: Vec::new(),
        cors_origins: Vec::new(),
        backends: vec![
            Backend {
                base_url: Some("https://api.anthropic.com".to_owned()),
                auth: Auth::Key("sk-ant-1".to_owned()),
                default_model: Some("claude-sonnet-5".to_owned()),
                ..plain("anthropic", Dialect("anthropic"))
            },
            Backend {
                default_model: Some("claude-sonnet-5".to_owned()),
                ..plain("simulator", Dialect::SIMULATOR)
            },
        ],
        route: Routes {
            default: "anthropic".to_owned(),
            cool_down: Duration::from_secs(2),
            ..Routes::default()
        },
        models: None,
        thinking: Thinking {
            policy: Policy::Origin,
            unknown: Unknown::Try,
            orphan_threshold: Duration::from_secs(300),
            memory_limit: 256 << 20,
            tool_thinking: ToolThinking::Auto,
        },
        reasoning_fields: vec![ReasoningField::Reasoning, ReasoningField::ReasoningContent],
        mcp: Vec::new(),
        tools: throughline_conversations::tool_loop::Limits::default(),
        rooms: throughline_conversations::rooms::RoomSettings::default(),
        projects: ProjectDefaults {
            provider: String::new(),
            model: String::new(),
            mode: ProjectMode::Managed,
            previous_response: PreviousResponse::Off,
        },
        store: Store {
            url: StoreUrl::Sqlite("/users/ada/.local/share/throughline/throughline.db".into()),
            raw: true,
        },
        redis: RedisUrl::default(),
        responses: Retention { time: Duration::from_secs(30 * 86_400), limit: 1 << 30 },
        threads: Duration::from_secs(3600),
        users: UserSettings {
            session: Duration::from_secs(30 * 86_400),
            registration: RegistrationRule::Open,
        },
        runs: RunSettings {
            log: true,
            retention: Duration::from_secs(600),
            detached: Some(Duration::from_secs(120)),
            pacing: Pacing::default(),
            reader_queue: 1000,
        },
        limits: Limits { body: 64 << 20, json_depth: 128, streams: 1000 },
        debug_log: DebugLog { enabled: false, full_body: false, pretty_print: false },
        notes: Vec::new(),
    };
    assert_eq!(config, expected);
    assert_eq!(Config::from_env(environment(&[])).unwrap(), expected);
}

#[test]
fn runs_and_their_pacing_can_be_set() {
    let config = good(
        r#"
        [runs]
        detached = "until_end"
        retention = "1h"
        log = false

        [pacing]
        text = { window_ms = 80, bytes = 256 }
        thinking = "paragraph"
        "#,
    );
    let after = Duration::from_millis(80);
    assert_eq!(
        config.runs,
        RunSettings {
            log: false,
            retention: Duration::from_secs(3600),
            detached: None,
            pacing: Pacing {
                text: Pace::Window { after, bytes: 256 },
                thinking: Pace::Paragraph,
                tool_args: Pace::JsonBoundary,
            },
            reader_queue: 1000,
        }
    );
}

fn plain(name: &str, dialect: Dialect) -> Backend {
    Backend {
        name: name.to_owned(),
        dialect,
        wire_dialect: match dialect {
            Dialect::SIMULATOR => Dialect::DEFAULT,
            other => other,
        },
        variant: String::new(),
        base_url: None,
        auth: Auth::None,
        share_caller_key: false,
        signature_domain: name.to_owned(),
        models: Vec::new(),
        default_model: None,
        raw_text: RawText {
            family: None,
            reasoning_format: ReasoningFormat::Split,
            on_error: OnError::Error,
        },
        thinking_compat: None,
        strict_settings: true,
        replay: Replay::Verbatim,
        cache: Cache::Auto,
        retries: 0,
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(120),
            first_byte_for_whole: false,
            idle: Duration::from_secs(120),
            total: Duration::from_secs(1800),
        },
    }
}

#[test]
fn every_backend_key_is_read() {
    let config = good(
        r#"
        [[backend]]
        name = "own"
        dialect = "anthropic"
        base_url = "http://localhost:9000/v1/"
        auth = "passthrough"
        share_caller_key = true
        signature_domain = "anthropic"
        models = { "claude-opus-*" = "glm-5", "*" = "glm-5-air" }
        default_model = "glm-5"
        family = "qwen3"
        reasoning_format = "raw"
        on_tool_parse_error = "text"
        thinking_compat = { mode = "budget", budget = 8000 }
        strict_settings = false
        replay = "latest_turn"
        cache = "client"
        retries = 2
        timeouts = { connect = "250ms", first_byte = "1s", idle = "2m", total = "1h" }

        [[backend]]
        name = "key"
        dialect = "anthropic"
        base_url = "http://localhost:9001"
        api_key = "  written out "
        "#,
    );
    let own = Backend {
        base_url: Some("http://localhost:9000".to_owned()),
        auth: Auth::Passthrough,
        share_caller_key: true,
        signature_domain: "anthropic".to_owned(),
        models: vec![
            ("claude-opus-*".to_owned(), "glm-5".to_owned()),
            ("*".to_owned(), "glm-5-air".to_owned()),
        ],
        default_model: Some("glm-5".to_owned()),
        raw_text: RawText {
            family: Some("qwen3".to_owned()),
            reasoning_format: ReasoningFormat::Raw,
            on_error: OnError::Text,
        },
        thinking_compat: Some(Compat::Budget(Some(8000))),
        strict_settings: false,
        replay: Replay::LatestTurn,
        cache: Cache::Client,
        retries: 2,
        timeouts: Timeouts {
            connect: Duration::from_millis(250),
            first_byte: Duration::from_secs(1),
            first_byte_for_whole: true,
            idle: Duration::from_secs(120),
            total: Duration::from_secs(3600),
        },
        ..plain("own", Dialect("anthropic"))
    };
    let key = Backend {
        base_url: Some("http://localhost:9001".to_owned()),
        auth: Auth::Key("written out".to_owned()),
        ..plain("key", Dialect("anthropic"))
    };
    assert_eq!(config.backends, [own, key]);
    assert_eq!(config.route.default, "own");
}

#[test]
fn family_names_ignore_case_and_spaces() {
    for (written, family) in [
        ("auto", None),
        ("Auto", None),
        ("none", Some("none")),
        (" NONE ", Some("none")),
        ("gpt-oss", Some("gpt-oss")),
        ("GPT_OSS", Some("GPT_OSS")),
        (" qwen3 ", Some("qwen3")),
    ] {
        let config = good(&format!("{BACKEND}family = '{written}'\n"));
        assert_eq!(config.backends[0].raw_text.family.as_deref(), family, "{written}");
    }
    let env = [("THROUGHLINE_BACKEND__GLM__FAMILY", "qwen3")];
    let config = read_with(BACKEND, &env).unwrap();
    assert_eq!(config.backends[0].raw_text.family.as_deref(), Some("qwen3"));
}

#[test]
fn raw_text_settings_without_effect_are_noted() {
    for (lines, settings) in [
        ("", &[][..]),
        ("family = 'AUTO'\nreasoning_format = 'split'\non_tool_parse_error = 'error'", &[]),
        ("family = 'none'", &["family = \"none\""]),
        ("reasoning_format = 'none'", &["reasoning_format = \"none\""]),
        (
            "on_tool_parse_error = 'text'\nreasoning_format = 'raw'\nfamily = 'GPT_OSS'",
            &[
                "family = \"GPT_OSS\"",
                "reasoning_format = \"raw\"",
                "on_tool_parse_error = \"text\"",
            ],
        ),
    ] {
        for (name, dialect, more) in [
            ("a", "anthropic", "base_url = 'https://a.example'\napi_key = 'do-not-show'"),
            ("s", "simulator", ""),
        ] {
            let text =
                format!("[[backend]]\nname = '{name}'\ndialect = '{dialect}'\n{more}\n{lines}\n");
            let expected: Vec<String> = settings
                .iter()
                .map(|setting| format!("backend `{name}`: `{setting}` has no effect: replies of the dialect `{dialect}` are not raw text"))
                .collect();
            assert_eq!(good(&text).notes, expected, "{text}");
        }
    }
}

#[test]
fn routes_can_be_written_inline_or_as_tables() {
    let route = Routes {
        default: "a".to_owned(),
        rules: vec![Rule {
            model: "gpt-*".to_owned(),
            backend: "b".to_owned(),
            fallback: vec!["a".to_owned()],
        }],
        fallback: vec!["b".to_owned()],
        cool_down: Duration::from_secs(2),
    };
    let backends = r#"backend = [{ name = "a", dialect = "simulator" }, { name = "b", dialect = "simulator" }]"#;
    for written in [
        r#"route = { default = "a", rules = [{ model = "gpt-*", backend = "b", fallback = ["a"] }], fallback = ["b"] }"#,
        "[route]\ndefault = 'a'\nfallback = ['b']\n[[route.rules]]\nmodel = 'gpt-*'\nbackend = 'b'\nfallback = ['a']",
        "route.default = 'a'\nroute.fallback = ['b']\nroute.rules = [{ model = 'gpt-*', backend = 'b', fallback = ['a'] }]",
    ] {
        assert_eq!(good(&format!("{backends}\n{written}")).route, route, "{written}");
    }
}

#[test]
fn projects_have_a_default_provider_and_model() {
    let text = "[projects]\nprovider = 'simulator'\nmodel = 'm'\nmode = 'managed'";
    let projects = good(text).projects;
    assert_eq!((projects.provider.as_str(), projects.model.as_str()), ("simulator", "m"));
}

#[test]
fn example_file_is_valid() {
    let config = good(include_str!("../../../../../throughline.example.toml"));
    let names: Vec<&str> = config.backends.iter().map(|backend| backend.name.as_str()).collect();
    assert_eq!(names, ["anthropic", "glm", "anthropic-own-key", "own", "simulator"]);
    assert_eq!(config.notes, Vec::<String>::new());
}

#[test]
fn example_file_has_every_available_key() {
    let known = keys_of(include_str!("../../../../../throughline.example.toml"));
    let missing: Vec<&str> = schema::ROWS
        .iter()
        .filter(|row| row.available && !known.contains(row.path))
        .map(|row| row.path)
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// The dotted paths of all sections and keys in a file, also of those in comments.
fn keys_of(file: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut section = String::new();
    for line in file.lines().map(|line| line.trim_start_matches("# ")) {
        if let Some(header) = line.strip_prefix('[') {
            header.trim_matches(['[', ']']).clone_into(&mut section);
            keys.insert(section.clone());
            continue;
        }
        let mut words = line.split(" = ").filter_map(|part| part.split_whitespace().next_back());
        let Some(first) = words.next() else { continue };
        let first =
            if section.is_empty() { first.to_owned() } else { format!("{section}.{first}") };
        // The members of an inline table.
        keys.extend(words.map(|word| format!("{first}.{word}")));
        keys.insert(first);
    }
    keys
}

#[test]
fn examples_in_the_documentation_are_valid() {
    let page = include_str!("../../../../../docs/configuration.md");
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        good(block);
    }
}

#[test]
fn diagnostics_in_the_documentation_are_up_to_date() {
    let text = r#"keep_alive = 15

[[backend]]
name = "glm"
dialect = "anthropic"
base_url = "https://api.z.ai/api/anthropic"
api_key_env = "ZAI_API_KEY"

[route]
default = "gml"

[thinking]
polcy = "session"
"#;
    let shown = read_with(text, &[]).unwrap_err().to_string();
    let page = include_str!("../../../../../docs/configuration.md");
    assert!(page.contains(&shown), "put this into docs/configuration.md:\n{shown}");
}

#[test]
fn store_is_a_file_or_a_database() {
    let url = |text: &str| good(&format!("data_dir = \"/d\"\n[store]\nurl = \"{text}\"")).store.url;
    assert_eq!(url("sqlite:other.db"), StoreUrl::Sqlite("/d/other.db".into()));
    assert_eq!(url("sqlite:///srv/x.db"), StoreUrl::Sqlite("/srv/x.db".into()));
    let postgres = "postgres://ada:s3cret@db.example/throughline";
    assert_eq!(url(postgres), StoreUrl::Postgres(postgres.into()));
    assert!(!format!("{:?}", url(postgres)).contains("s3cret"));
}

#[test]
fn redis_is_off_unless_it_is_set() {
    let redis = |text: &str| good(&format!("[redis]\nurl = \"{text}\"")).redis;
    assert_eq!(redis(""), RedisUrl::default());
    let url = "rediss://ada:s3cret@cache.example:6380/1";
    assert_eq!(redis(url), RedisUrl(url.to_owned()));
    assert!(!format!("{:?}", redis(url)).contains("s3cret"));
}
