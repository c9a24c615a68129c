//! The module as a whole: text and environment in, a configuration or all mistakes out.

use std::path::PathBuf;
use std::time::Duration;

use super::schema::{Kind, ROWS, Row};
use super::*;

const ENV: &[(&str, &str)] = &[
    ("HOME", "/users/ada"),
    ("ANTHROPIC_API_KEY", "sk-ant-1"),
    ("ZAI_API_KEY", "zai-1"),
];

/// The smallest file that has a backend of its own.
const BACKEND: &str = r#"
[[backend]]
name = "glm"
dialect = "anthropic"
base_url = "https://api.z.ai/api/anthropic"
"#;

fn environment(extra: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = ENV.iter().chain(extra);
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn read_with(text: &str, extra: &[(&str, &str)]) -> Result<Config, Mistakes> {
    let source = Source {
        name: "throughline.toml".to_owned(),
        text: text.to_owned(),
    };
    read(Some(&source), environment(extra), Overrides::default())
}

fn good(text: &str) -> Config {
    read_with(text, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}\nin\n{text}"))
}

/// The mistakes of a text, without the closing line.
fn bad(text: &str, extra: &[(&str, &str)]) -> Vec<String> {
    let mistakes = read_with(text, extra).expect_err(text).0;
    mistakes.iter().map(ToString::to_string).collect()
}

/// Each text has exactly one mistake, and its message has these words.
fn each_has_one_mistake(cases: &[(&str, &str)]) {
    for (text, words) in cases {
        let mistakes = bad(text, &[]);
        assert_eq!(mistakes.len(), 1, "{text}\n{mistakes:#?}");
        assert!(
            mistakes[0].contains(words),
            "{text}\n{}\nlacks: {words}",
            mistakes[0]
        );
    }
}

#[test]
fn all_mistakes_are_told_in_one_go() {
    let text = r#"listen = "0.0.0.0:8484"
keep_alive = 15
tls = { cert = "a.pem" }

[[backend]]
name = "anthropic"
dialect = "anthropic"
base_url = "https://api.anthropic.com"
api_key = "sk-very-secret"
auth = "passthrough"

[[backend]]
name = "glm"
dialect = "gemini"
timeouts = { conect = "5s" }
apikey = "hunter2"

[route]
default = "gml"

[thinking]
polcy = "session"
unknown = "tri"
"#;
    let told = read_with(text, &[("THROUGHLINE_LIMITS__BODI", "1MiB")])
        .unwrap_err()
        .to_string();
    let expected = r#"throughline.toml:1:10: `listen` is `0.0.0.0:8484`, which is not a loopback address
    1 | listen = "0.0.0.0:8484"
      |          ^^^^^^^^^^^^^^ expected `localhost`, `127.0.0.1` or `[::1]`
      = gateway keys are not available yet, so only loopback addresses can be served; put a reverse proxy in front
throughline.toml:2:14: `keep_alive` is `15`, without a unit
    2 | keep_alive = 15
      |              ^^ expected a duration: a number and one of `ms`, `s`, `m`, `h`, as in "15s"
      = if seconds are meant, write "15s"
throughline.toml:3:1: `tls` is not available yet
    3 | tls = { cert = "a.pem" }
      | ^^^ take it out until a release has it
throughline.toml:10:8: `auth` stands beside `api_key`
   10 | auth = "passthrough"
      |        ^^^^^^^^^^^^^ expected only one of `api_key_env`, `api_key` and `auth`
throughline.toml:14:11: dialect `gemini` is not available yet
   14 | dialect = "gemini"
      |           ^^^^^^^^ expected one of `anthropic`, `simulator`
throughline.toml:15:14: unknown key `conect` in [backend.timeouts]
   15 | timeouts = { conect = "5s" }
      |              ^^^^^^ did you mean `connect`?
throughline.toml:16:1: unknown key `apikey` in [[backend]]
   16 | apikey = "*******"
      | ^^^^^^ did you mean `api_key`?
throughline.toml:19:11: no backend is called `gml`
   19 | default = "gml"
      |           ^^^^^ expected one of `anthropic`, `glm`
      = did you mean `glm`?
throughline.toml:22:1: unknown key `polcy` in [thinking]
   22 | polcy = "session"
      | ^^^^^ did you mean `policy`?
throughline.toml:23:11: `unknown` is `tri`
   23 | unknown = "tri"
      |           ^^^^^ expected one of `try`, `drop`
      = did you mean `try`?
env THROUGHLINE_LIMITS__BODI: no setting has this name
      = did you mean `THROUGHLINE_LIMITS__BODY`?
11 mistakes in throughline.toml and the environment; nothing was started"#;
    assert_eq!(told, expected);
}

#[test]
fn an_empty_file_has_all_defaults() {
    let config = good("");
    let expected = Config {
        listen: "127.0.0.1:8484".to_owned(),
        data_dir: PathBuf::from("/users/ada/.local/share/throughline"),
        log: Log {
            level: Level::Info,
            format: Format::Text,
        },
        keep_alive: Duration::from_secs(15),
        allowed_hosts: Vec::new(),
        backends: vec![
            Backend {
                base_url: Some("https://api.anthropic.com".to_owned()),
                auth: Auth::Key(Secret::new("sk-ant-1")),
                ..plain("anthropic", Dialect::Anthropic)
            },
            plain("simulator", Dialect::Simulator),
        ],
        route: Route {
            default: "anthropic".to_owned(),
            rules: Vec::new(),
            fallback: Vec::new(),
        },
        thinking: Thinking {
            policy: Policy::Origin,
            unknown: Unknown::Try,
            orphan_threshold: Duration::from_secs(300),
            memory_limit: 256 << 20,
        },
        limits: Limits {
            body: 64 << 20,
            json_depth: 128,
            streams: 1000,
        },
        debug_log: DebugLog {
            enabled: false,
            full_body: false,
            pretty_print: false,
        },
        notes: Vec::new(),
    };
    assert_eq!(config, expected);
    assert_eq!(Config::zero(environment(&[])).unwrap(), expected);
}

fn plain(name: &str, dialect: Dialect) -> Backend {
    Backend {
        name: name.to_owned(),
        dialect,
        base_url: None,
        auth: Auth::None,
        share_caller_key: false,
        signature_domain: name.to_owned(),
        models: Vec::new(),
        default_model: None,
        thinking_compat: None,
        replay: Replay::Verbatim,
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
fn every_backend_key_arrives() {
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
        thinking_compat = { mode = "budget", budget = 8000 }
        replay = "latest_turn"
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
        thinking_compat: Some(Compat {
            mode: CompatMode::Budget,
            budget: Some(8000),
        }),
        replay: Replay::LatestTurn,
        retries: 2,
        timeouts: Timeouts {
            connect: Duration::from_millis(250),
            first_byte: Duration::from_secs(1),
            first_byte_for_whole: true,
            idle: Duration::from_secs(120),
            total: Duration::from_secs(3600),
        },
        ..plain("own", Dialect::Anthropic)
    };
    let key = Backend {
        base_url: Some("http://localhost:9001".to_owned()),
        auth: Auth::Key(Secret::new("written out")),
        ..plain("key", Dialect::Anthropic)
    };
    assert_eq!(config.backends, [own, key]);
    assert_eq!(config.route.default, "own");
}

#[test]
fn routes_arrive_however_they_are_written() {
    let route = Route {
        default: "a".to_owned(),
        rules: vec![Rule {
            model: "gpt-*".to_owned(),
            backend: "b".to_owned(),
            fallback: vec!["a".to_owned()],
        }],
        fallback: vec!["b".to_owned()],
    };
    let backends = r#"backend = [{ name = "a", dialect = "simulator" }, { name = "b", dialect = "simulator" }]"#;
    for written in [
        r#"route = { default = "a", rules = [{ model = "gpt-*", backend = "b", fallback = ["a"] }], fallback = ["b"] }"#,
        "[route]\ndefault = 'a'\nfallback = ['b']\n[[route.rules]]\nmodel = 'gpt-*'\nbackend = 'b'\nfallback = ['a']",
        "route.default = 'a'\nroute.fallback = ['b']\nroute.rules = [{ model = 'gpt-*', backend = 'b', fallback = ['a'] }]",
    ] {
        assert_eq!(
            good(&format!("{backends}\n{written}")).route,
            route,
            "{written}"
        );
    }
}

#[test]
fn the_example_is_a_configuration() {
    let config = good(include_str!("../../../../throughline.example.toml"));
    let names: Vec<&str> = config
        .backends
        .iter()
        .map(|backend| backend.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["anthropic", "glm", "anthropic-own-key", "simulator"]
    );
    assert_eq!(config.notes, Vec::<String>::new());
}

#[test]
fn examples_in_the_documentation_are_configurations() {
    let page = include_str!("../../../../docs/configuration.md");
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        good(block);
    }
}

#[test]
fn mistakes_in_the_documentation_look_like_that() {
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
    let told = read_with(text, &[]).unwrap_err().to_string();
    let page = include_str!("../../../../docs/configuration.md");
    assert!(
        page.contains(&told),
        "put this into docs/configuration.md:\n{told}"
    );
}

#[test]
fn unknown_keys_say_what_is_meant() {
    each_has_one_mistake(&[
        ("lissten = 'x'", "unknown key `lissten` at the top level"),
        ("lissten = 'x'", "did you mean `listen`?"),
        ("[thniking]", "did you mean `thinking`?"),
        ("[[backends]]", "did you mean `backend`?"),
        ("[limits]\njson-depth = 9", "did you mean `json_depth`?"),
        ("policy = 'origin'", "it belongs in [thinking]"),
        (
            "[route]\nkeep_alive = '1s'",
            "it belongs at the top level, above the first [section]",
        ),
        (
            "[debug_log]\ncolour = 1",
            "expected one of `enabled`, `full_body`, `pretty_print`",
        ),
        ("[log]\nlevle = 'info'", "unknown key `levle` in [log]"),
    ]);
}

#[test]
fn every_later_key_is_refused() {
    for row in ROWS.iter().filter(|row| !row.available) {
        let whole = ROWS
            .iter()
            .find(|section| section.path == row.section() && !section.available);
        let mistakes = bad(&set(row, "1"), &[]);
        let key = whole.unwrap_or(row).key();
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
        assert!(
            mistakes[0].contains(&format!("`{key}` is not available yet")),
            "{}",
            mistakes[0]
        );
    }
    for dialect in ["openai_chat", "openai_responses", "gemini", "ollama"] {
        let text = format!("[[backend]]\nname = 'x'\ndialect = '{dialect}'");
        let words = format!("dialect `{dialect}` is not available yet");
        each_has_one_mistake(&[(&text, &words)]);
    }
}

/// A row that nobody reads would be a key that is ignored in silence.
#[test]
fn every_available_key_is_read() {
    for row in ROWS.iter().filter(|row| row.available) {
        let mistakes = bad(&set(row, "1979-05-27"), &[]);
        let told = mistakes.iter().any(|mistake| {
            mistake.contains(&format!("`{}` is a date or time", row.key()))
                && mistake.contains("expected")
        });
        assert!(told, "{}: {mistakes:#?}", row.path);
    }
}

/// A file that sets one key, with the tables around it.
fn set(row: &Row, value: &str) -> String {
    let mut text = String::new();
    let mut inside: Vec<&str> = Vec::new();
    for part in row.section().split('.').filter(|part| !part.is_empty()) {
        inside.push(part);
        let path = inside.join(".");
        let list = ROWS
            .iter()
            .any(|row| row.path == path && matches!(row.kind, Kind::Tables));
        text += &if list {
            format!("[[{path}]]\n")
        } else {
            format!("[{path}]\n")
        };
        // What a table cannot do without would be mistakes of its own.
        text += match path.as_str() {
            "backend" if row.path != "backend.name" => "name = 'x'\n",
            _ => "",
        };
        text += match path.as_str() {
            "backend" if row.path != "backend.dialect" => "dialect = 'simulator'\n",
            _ => "",
        };
    }
    format!("{text}{} = {value}\n", row.key())
}

#[test]
fn each_value_is_checked() {
    each_has_one_mistake(&[
        ("listen = 8484", "`listen` is a whole number"),
        ("listen = ''", "`listen` is empty"),
        ("listen = '8484'", "an address and a port"),
        ("listen = '[::]:1'", "put a reverse proxy in front"),
        ("data_dir = '~other'", "`~/` for your own home"),
        ("log = 'debug'", "expected a table, [log]"),
        ("log.level = 'Info'", "did you mean `info`?"),
        ("log.format = 'xml'", "one of `text`, `json`"),
        ("keep_alive = '15'", "`keep_alive` is `15`"),
        ("keep_alive = '0s'", "longer than nothing"),
        (
            "keep_alive = 1.5",
            "`keep_alive` is a number with a fraction",
        ),
        ("allowed_hosts = 'x'", "a list of texts"),
        ("allowed_hosts = ['https://x']", "expected a host name"),
        (
            "allowed_hosts = ['x', 1]",
            "`allowed_hosts` holds a whole number",
        ),
        ("thinking = 1", "expected a table, [thinking]"),
        ("thinking.policy = 'sesion'", "did you mean `session`?"),
        ("thinking.orphan_threshold = '0m'", "longer than nothing"),
        ("thinking.memory_limit = '1023KiB'", "at least `1MiB`"),
        ("thinking.memory_limit = 'lots'", "a size"),
        ("limits.body = -1", "a size"),
        ("limits.json_depth = 7", "a whole number 8 to 1024"),
        ("limits.json_depth = 1025", "a whole number 8 to 1024"),
        ("limits.json_depth = '9'", "without quotes"),
        ("limits.streams = 0", "a whole number 1 to"),
        ("debug_log.enabled = 'yes'", "`true` or `false`"),
        (
            "backend = 'glm'",
            "a list of tables, each under [[backend]]",
        ),
        ("backend = ['glm']", "expected a table"),
        (
            "[backend]\nname = 'x'",
            "a list of tables, each under [[backend]]",
        ),
        ("route.default = 'glm'", "no backend is called `glm`"),
        ("route.default = 'anthropc'", "did you mean `anthropic`?"),
        ("route.fallback = ['simulatr']", "did you mean `simulator`?"),
        (
            "route.rules = [{ model = 'x', backend = 'y' }]",
            "no backend is called `y`",
        ),
        (
            "route.rules = [{ model = 'x' }]",
            "`backend` is missing in [[route.rules]]",
        ),
        (
            "route.rules = [{ backend = 'simulator' }]",
            "`model` is missing in [[route.rules]]",
        ),
        (
            "route.rules = [{ model = '*x', backend = 'simulator' }]",
            "model pattern is `*x`",
        ),
        (
            "route.rules = [{ model = 'a**', backend = 'simulator' }]",
            "one `*` at the end",
        ),
        (
            "route.rules = [{ model = 'x', backend = 'simulator', fallback = ['y'] }]",
            "no backend is called `y`",
        ),
        (
            "route.rules = [\n{ model = 'x', backend = 'simulator' },\n{ model = 'x', backend = 'anthropic' }]",
            "the first is at line 2",
        ),
    ]);
}

#[test]
fn each_backend_is_checked() {
    for (lines, words) in [
        (
            "name = 'glm'\ndialect = 'simulator'",
            "the first is at line 3",
        ),
        ("name = 'GLM'\ndialect = 'simulator'", "did you mean `glm`?"),
        (
            "name = 'a b'\ndialect = 'simulator'",
            "only `a-z`, `0-9`, `_` and `-`",
        ),
        ("dialect = 'simulator'", "`name` is missing in [[backend]]"),
        ("name = 'x'", "`dialect` is missing in [[backend]]"),
        (
            "name = 'x'\ndialect = 'antropic'",
            "did you mean `anthropic`?",
        ),
        (
            "name = 'x'\ndialect = 'claude'",
            "one of `anthropic`, `simulator`",
        ),
        (
            "name = 'x'\ndialect = 'anthropic'",
            "expected a line `base_url = \"https://...\"`",
        ),
        (
            "name = 'x'\ndialect = 'anthropic'\nbase_url = 'api.z.ai'",
            "`https://api.z.ai`",
        ),
        (
            "name = 'x'\ndialect = 'anthropic'\nbase_url = 'ftp://api.z.ai'",
            "starts with `https://`",
        ),
        (
            "name = 'x'\ndialect = 'anthropic'\nbase_url = 'http://h/v1/messages'",
            "write `http://h`",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nbase_url = 'http://h'",
            "no meaning for the simulator",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nauth = 'pass'",
            "expected `passthrough`",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nshare_caller_key = true",
            "it goes with `auth",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\napi_key_env = 'NO_SUCH'",
            "`NO_SUCH` is not set",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\napi_key_env = 'ANTHROPIC_APIKEY'",
            "did you mean `ANTHROPIC_API_KEY`?",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nmodels = { 'a*b' = 'c' }",
            "model pattern is `a*b`",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nmodels = { 'a' = 'c*' }",
            "a name without `*`",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nmodels = { 'a' = 1 }",
            "`models` holds a whole number",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nthinking_compat = { budget = 2000 }",
            "`mode` is missing",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nthinking_compat = { mode = 'budget', budget = 1023 }",
            "a whole number from 1024",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nreplay = 'latest-turn'",
            "did you mean `latest_turn`?",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nretries = -1",
            "a whole number 0 to 10",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\ntimeouts.idle = 'never'",
            "expected a duration",
        ),
    ] {
        each_has_one_mistake(&[(&format!("{BACKEND}[[backend]]\n{lines}\n"), words)]);
    }
}

#[test]
fn only_one_credential_may_be_given() {
    let text =
        format!("{BACKEND}api_key = 'x'\napi_key_env = 'ZAI_API_KEY'\nauth = 'passthrough'\n");
    let mistakes = bad(&text, &[]);
    assert_eq!(mistakes.len(), 2);
    assert!(
        mistakes[0].contains("`api_key` stands beside `api_key_env`"),
        "{}",
        mistakes[0]
    );
    assert!(
        mistakes[1].contains("`auth` stands beside `api_key_env`"),
        "{}",
        mistakes[1]
    );
}

#[test]
fn keys_never_appear() {
    let config = good(&format!("{BACKEND}api_key = 'tell-nobody'\n"));
    assert!(!format!("{config:?}").contains("tell-nobody"));
    let Auth::Key(secret) = &config.backends[0].auth else {
        panic!("no key")
    };
    assert_eq!(
        (secret.expose(), secret.to_string().as_str()),
        ("tell-nobody", "hidden")
    );
    for line in [
        "api_key = 'tell-nobody\u{e9}'",
        "api_key = 'tell-nobody', retries = 1",
        "api_key = tell-nobody",
        "api_kye = 'tell-nobody'",
        "api_key_env = 'tell-nobody'",
        "auth = 'sk-tell-nobody'",
        "api_key = ['tell-nobody']",
    ] {
        let told = read_with(&format!("{BACKEND}{line}\n"), &[]).expect_err(line);
        assert!(
            !format!("{told} {told:?}").contains("tell-nobody"),
            "{told}"
        );
    }
    let env = [("THROUGHLINE_BACKEND__GLM__API_KEY", "tell-nobody\u{7}")];
    let told = read_with(BACKEND, &env).unwrap_err().to_string();
    assert!(!told.contains("tell-nobody"), "{told}");
}

#[test]
fn text_that_is_not_toml_is_one_mistake() {
    let told = read_with(
        "listen = \"x\"\nkeep_alive = 15s\n",
        &[("THROUGHLINE_X", "1")],
    );
    let told = told.unwrap_err().to_string();
    assert!(
        told.starts_with("throughline.toml:2:14: not TOML: "),
        "{told}"
    );
    assert!(
        told.ends_with("\n1 mistake in throughline.toml; nothing was started"),
        "{told}"
    );
    each_has_one_mistake(&[
        (
            "listen = 'x'\nlisten = 'y'",
            "throughline.toml:2:1: duplicate key `listen`",
        ),
        ("keep_alive =", ":1:13: not TOML"),
        ("[thinking", ":1:10: not TOML"),
        ("listen = 'x", ":1:12: not TOML"),
    ]);
}

#[test]
fn places_count_characters_and_survive_odd_lines() {
    each_has_one_mistake(&[
        (
            "data_dir = 'd'\r\nlissten = 'x'\r\n",
            "    2 | lissten = 'x'\n      | ^^^^^^^",
        ),
        ("allowed_hosts = [\n\t'https://é'\n]", ":2:2:"),
        (
            "allowed_hosts = [\n\t'https://é'\n]",
            "\n      | \t^^^^^^^^^^^ ",
        ),
        (
            "log = { format = \"ü\\u001b[0m\" }",
            r"`format` is `ü\u{1b}[0m`",
        ),
        ("\u{feff}lissten = 'x'", ":1:1: unknown key `lissten`"),
    ]);
    let long = format!("lissten = '{}'", "x".repeat(500));
    assert!(
        bad(&long, &[])[0]
            .lines()
            .all(|line| line.chars().count() < 140)
    );
}

#[test]
fn variables_take_the_place_of_keys() {
    let text =
        format!("{BACKEND}api_key_env = 'ZAI_API_KEY'\nretries = 1\n[limits]\nbody = 'wrong'\n");
    let config = read_with(
        &text,
        &[
            ("THROUGHLINE_LISTEN", "localhost:0"),
            ("THROUGHLINE_DATA_DIR", "state"),
            ("THROUGHLINE_LOG__LEVEL", "debug"),
            ("THROUGHLINE_LOG__FORMAT", "\"json\""),
            ("THROUGHLINE_KEEP_ALIVE", "250ms"),
            ("THROUGHLINE_ALLOWED_HOSTS", "['a.example']"),
            ("THROUGHLINE_THINKING__POLICY", "session"),
            ("THROUGHLINE_LIMITS__BODY", "1MiB"),
            ("THROUGHLINE_LIMITS__STREAMS", "7"),
            ("THROUGHLINE_DEBUG_LOG__ENABLED", "true"),
            (
                "THROUGHLINE_ROUTE__RULES",
                "[{ model = 'x', backend = 'glm' }]",
            ),
            ("THROUGHLINE_BACKEND__GLM__API_KEY", "12345"),
            ("THROUGHLINE_BACKEND__GLM__TIMEOUTS__IDLE", "9s"),
            ("THROUGHLINE_BACKEND__GLM__MODELS", "{ '*' = 'glm-5' }"),
            ("THROUGHLINE_CONFIG", "x"),
            ("THROUGHLINE_KEYRING", "x"),
            ("THROUGHLINE_URL", "x"),
        ],
    );
    let config = config.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(config.listen, "localhost:0");
    assert_eq!(config.data_dir, PathBuf::from("state"));
    assert_eq!(
        config.log,
        Log {
            level: Level::Debug,
            format: Format::Json
        }
    );
    assert_eq!(config.keep_alive, Duration::from_millis(250));
    assert_eq!(config.allowed_hosts, ["a.example"]);
    assert_eq!(config.thinking.policy, Policy::Session);
    assert_eq!((config.limits.body, config.limits.streams), (1 << 20, 7));
    assert!(config.debug_log.enabled);
    assert_eq!(config.route.rules.len(), 1);
    let glm = &config.backends[0];
    assert_eq!(glm.auth, Auth::Key(Secret::new("12345")));
    assert_eq!(glm.retries, 1);
    assert_eq!(glm.timeouts.idle, Duration::from_secs(9));
    assert_eq!(glm.models, [("*".to_owned(), "glm-5".to_owned())]);
}

#[test]
fn mistakes_in_variables_name_the_variable() {
    for (name, value, told) in [
        (
            "THROUGHLINE_THINKING__POLCY",
            "session",
            "env THROUGHLINE_THINKING__POLCY: no setting has this name\n      = did you mean `THROUGHLINE_THINKING__POLICY`?",
        ),
        (
            "THROUGHLINE_LOG__LEVEL",
            "inof",
            "env THROUGHLINE_LOG__LEVEL: `level` is `inof`\n      = expected one of `trace`, `debug`, `info`, `warn`, `error`\n      = did you mean `info`?",
        ),
        (
            "THROUGHLINE_LOG",
            "{ levle = 'info' }",
            "env THROUGHLINE_LOG: unknown key `levle` in [log]\n      = did you mean `level`?",
        ),
        (
            "THROUGHLINE_LIMITS__QUEUE",
            "1",
            "env THROUGHLINE_LIMITS__QUEUE: `queue` is not available yet\n      = take it out until a release has it",
        ),
        (
            "THROUGHLINE_STORE__URL",
            "x",
            "env THROUGHLINE_STORE__URL: `store` is not available yet\n      = take it out until a release has it",
        ),
        (
            "THROUGHLINE_BACKEND__GLM__RETRYS",
            "1",
            "env THROUGHLINE_BACKEND__GLM__RETRYS: no setting has this name\n      = expected `THROUGHLINE_BACKEND__<NAME>__<KEY>` with one of the backends `glm`\n      = did you mean `THROUGHLINE_BACKEND__GLM__RETRIES`?",
        ),
        (
            "THROUGHLINE_BACKEND__GLM__RETRIES",
            "many",
            "env THROUGHLINE_BACKEND__GLM__RETRIES: `retries` is text\n      = expected a whole number, without quotes",
        ),
    ] {
        assert_eq!(bad(BACKEND, &[(name, value)]), [told], "{name}={value}");
    }
    let told = read_with("", &[("THROUGHLINE_LISTEN", "x")])
        .unwrap_err()
        .to_string();
    assert!(
        told.ends_with("1 mistake in the environment; nothing was started"),
        "{told}"
    );
}

#[test]
fn a_variable_that_fits_two_backends_fits_none() {
    let backend = |name: &str| format!("[[backend]]\nname = '{name}'\ndialect = 'simulator'\n");
    let text = backend("a-b") + &backend("a_b") + &backend("a__b") + &backend("a");
    let mistakes = bad(&text, &[("THROUGHLINE_BACKEND__A_B__RETRIES", "1")]);
    assert_eq!(mistakes.len(), 1);
    assert!(
        mistakes[0].contains("fits several backends: `a-b`, `a_b`"),
        "{}",
        mistakes[0]
    );
    let config = read_with(&text, &[("THROUGHLINE_BACKEND__A__B__RETRIES", "1")]).unwrap();
    let retries: Vec<u32> = config
        .backends
        .iter()
        .map(|backend| backend.retries)
        .collect();
    assert_eq!(retries, [0, 0, 1, 0]);
}

#[test]
fn flags_win() {
    let source = Source {
        name: "x".to_owned(),
        text: "listen = 'wrong'\ndata_dir = 'a'".to_owned(),
    };
    let env = environment(&[("THROUGHLINE_DATA_DIR", "b")]);
    let overrides = Overrides {
        listen: Some("[::1]:0".to_owned()),
        data_dir: Some(PathBuf::from("~/c")),
    };
    let config = read(Some(&source), env, overrides).unwrap();
    assert_eq!(
        (config.listen.as_str(), config.data_dir),
        ("[::1]:0", PathBuf::from("/users/ada/c"))
    );

    let overrides = Overrides {
        listen: Some("0.0.0.0:1".to_owned()),
        data_dir: None,
    };
    let told = read(None, [], overrides).unwrap_err().to_string();
    assert!(told.contains("--listen: `listen` is `0.0.0.0:1`"), "{told}");
    assert!(
        told.contains("env HOME: not set, so there is no place for `data_dir`"),
        "{told}"
    );
    assert!(
        told.ends_with("2 mistakes in the environment and the command line; nothing was started")
    );
}

#[test]
fn zero_configuration_takes_what_the_environment_offers() {
    let zero = |pairs: &[(&str, &str)]| {
        let env = pairs.iter().chain(&[("HOME", "/h")]);
        let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::zero(env).unwrap()
    };
    let names = |config: &Config| -> Vec<String> {
        config
            .backends
            .iter()
            .map(|backend| backend.name.clone())
            .collect()
    };

    let bare = zero(&[("ANTHROPIC_API_KEY", " ")]);
    assert_eq!(
        (names(&bare), bare.route.default.as_str()),
        (vec!["simulator".to_owned()], "simulator")
    );

    let found = zero(&[
        ("ANTHROPIC_API_KEY", "sk-ant-1"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:8484"),
        ("OPENAI_API_KEY", "x"),
        ("GEMINI_API_KEY", "x"),
        ("DEEPSEEK_API_KEY", "x"),
        ("OLLAMA_HOST", "x"),
        ("THROUGHLINE_BACKEND__ANTHROPIC__RETRIES", "2"),
    ]);
    assert_eq!(names(&found), ["anthropic", "simulator"]);
    assert_eq!(found.route.default, "anthropic");
    assert_eq!(
        found.backends[0].base_url.as_deref(),
        Some("https://api.anthropic.com")
    );
    assert_eq!(found.backends[0].retries, 2);
    assert_eq!(
        found.notes,
        [
            "OPENAI_API_KEY found, but the openai dialects are not available yet",
            "GEMINI_API_KEY found, but the gemini dialect is not available yet",
            "DEEPSEEK_API_KEY found, but the openai dialects are not available yet",
            "OLLAMA_HOST found, but the ollama dialect is not available yet",
        ]
    );

    let passed_on = zero(&[
        ("ANTHROPIC_API_KEY", "sk-ant-1"),
        ("THROUGHLINE_BACKEND__ANTHROPIC__AUTH", "passthrough"),
    ]);
    assert_eq!(passed_on.backends[0].auth, Auth::Passthrough);
}

#[test]
fn a_file_without_backends_has_those_of_zero_configuration() {
    for text in [
        "[route]\ndefault = 'simulator'",
        "backend = []\nroute.default = 'simulator'",
    ] {
        let config = good(text);
        assert_eq!(config.backends.len(), 2);
        assert_eq!(config.route.default, "simulator");
    }
    assert_eq!(good(BACKEND).backends.len(), 1);
}

#[test]
fn surprising_settings_are_noted() {
    assert_eq!(
        good(BACKEND).notes,
        ["backend `glm` is called without a key"]
    );
    let passthrough = |name: &str, url: &str, more: &str| {
        format!(
            "[[backend]]\nname = '{name}'\ndialect = 'anthropic'\nbase_url = '{url}'\nauth = 'passthrough'\n{more}\n"
        )
    };
    let text = passthrough("a", "https://a.example/x", "")
        + &passthrough("b", "https://b.example", "")
        + &passthrough("c", "https://c.example", "share_caller_key = true")
        + &passthrough("d", "https://a.example/y", "")
        + "[route]\nfallback = ['b', 'c', 'd']\nrules = [{ model = 'x', backend = 'a', fallback = ['b'] }]";
    assert_eq!(
        good(&text).notes,
        [
            "fallback from `a` to `b` is refused: a caller's key goes to another origin only with `share_caller_key = true` on `b`"
        ]
    );
}
