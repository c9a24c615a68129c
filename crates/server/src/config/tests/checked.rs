//! Mistakes in a file, each with its location and a hint.

use super::super::schema::{KeyType, ROWS, Row};
use super::*;

#[test]
fn all_mistakes_are_reported_at_once() {
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
dialect = "olama"
base_url = "http://glm:8000"
timeouts = { conect = "5s" }
apikey = "hunter2"

[route]
default = "gml"

[thinking]
polcy = "session"
unknown = "tri"
"#;
    let output = read_with(text, &[("THROUGHLINE_LIMITS__BODI", "1MiB")]).unwrap_err().to_string();
    let expected = r#"throughline.toml:1:10: `listen` is `0.0.0.0:8484`, which is not a loopback address
    1 | listen = "0.0.0.0:8484"
      |          ^^^^^^^^^^^^^^ expected `localhost`, `127.0.0.1` or `[::1]`
      = only loopback addresses are possible until gateway keys are available; put a reverse proxy in front
throughline.toml:2:14: `keep_alive` is `15`, without a unit
    2 | keep_alive = 15
      |              ^^ expected a duration: a number and one of `ms`, `s`, `m`, `h`, `d`, as in "15s"
      = for seconds, write "15s"
throughline.toml:3:1: `tls` is not available yet
    3 | tls = { cert = "a.pem" }
      | ^^^ remove it until a release supports it
throughline.toml:10:8: `auth` is set together with `api_key`
   10 | auth = "passthrough"
      |        ^^^^^^^^^^^^^ expected only one of `api_key_env`, `api_key` and `auth`
throughline.toml:14:11: `dialect` is `olama`
   14 | dialect = "olama"
      |           ^^^^^^^ expected one of `anthropic`, `gemini`, `ollama`, `openai_chat`, `openai_responses`, `simulator`
      = did you mean `ollama`?
throughline.toml:16:14: unknown key `conect` in [backend.timeouts]
   16 | timeouts = { conect = "5s" }
      |              ^^^^^^ did you mean `connect`?
throughline.toml:17:1: unknown key `apikey` in [[backend]]
   17 | apikey = "*******"
      | ^^^^^^ did you mean `api_key`?
throughline.toml:20:11: no backend is named `gml`
   20 | default = "gml"
      |           ^^^^^ expected one of `anthropic`, `glm`
      = did you mean `glm`?
throughline.toml:23:1: unknown key `polcy` in [thinking]
   23 | polcy = "session"
      | ^^^^^ did you mean `policy`?
throughline.toml:24:11: `unknown` is `tri`
   24 | unknown = "tri"
      |           ^^^^^ expected one of `try`, `drop`
      = did you mean `try`?
env THROUGHLINE_LIMITS__BODI: no setting has this name
      = did you mean `THROUGHLINE_LIMITS__BODY`?
11 mistakes in throughline.toml and the environment; nothing was started"#;
    assert_eq!(output, expected);
}

#[test]
fn unknown_keys_have_a_suggestion() {
    each_has_one_mistake(&[
        ("lissten = 'x'", "unknown key `lissten` at the top level"),
        ("lissten = 'x'", "did you mean `listen`?"),
        ("[thniking]", "did you mean `thinking`?"),
        ("[[backends]]", "did you mean `backend`?"),
        ("[limits]\njson-depth = 9", "did you mean `json_depth`?"),
        ("policy = 'origin'", "it belongs in [thinking]"),
        ("[route]\nkeep_alive = '1s'", "it belongs at the top level, above the first [section]"),
        ("[debug_log]\ncolour = 1", "expected one of `enabled`, `full_body`, `pretty_print`"),
        ("[log]\nlevle = 'info'", "unknown key `levle` in [log]"),
    ]);
}

#[test]
fn tool_servers_have_one_way_to_reach_them() {
    each_has_one_mistake(&[
        ("[[mcp]]\nname = 'a'", "this MCP server has neither `command` nor `url`"),
        ("[[mcp]]\ncommand = ['x']", "`name`"),
        ("[[mcp]]\nname = 'a'\ncommand = []", "`command` is empty"),
        (
            "[[mcp]]\nname = 'a'\ncommand = ['x']\nurl = 'http://127.0.0.1:1'",
            "`url` is set together with `command`",
        ),
        ("[[mcp]]\nname = 'a'\nurl = 'nowhere'", "`nowhere`"),
        ("[[mcp]]\nname = 'a'\ncommand = ['x']\ntoken_env = 'T'", "has no effect without `url`"),
        ("[[mcp]]\nname = 'a'\nurl = 'http://h/mcp'\ntoken_env = 'sk-1'", "is not the name of"),
        (
            "[[mcp]]\nname = 'a'\ncommand = ['x']\n[[mcp]]\nname = 'a'\ncommand = ['x']",
            "two MCP servers are named",
        ),
    ]);
}

#[test]
fn every_planned_key_is_rejected() {
    for row in ROWS.iter().filter(|row| !row.available) {
        let whole = ROWS.iter().find(|section| section.path == row.section() && !section.available);
        let mistakes = bad(&set(row, "1"), &[]);
        let key = whole.unwrap_or(row).key();
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
        assert!(mistakes[0].contains(&format!("`{key}` is not available yet")), "{}", mistakes[0]);
    }
}

/// A row that is never read would be a key that is silently ignored.
#[test]
fn every_available_key_is_read() {
    for row in ROWS.iter().filter(|row| row.available) {
        let mistakes = bad(&set(row, "1979-05-27"), &[]);
        let reported = mistakes.iter().any(|mistake| {
            mistake.contains(&format!("`{}` is a date or time", row.key()))
                && mistake.contains("expected")
        });
        assert!(reported, "{}: {mistakes:#?}", row.path);
    }
}

/// A file that sets one key, with the tables around it.
fn set(row: &Row, value: &str) -> String {
    let mut text = String::new();
    let mut inside: Vec<&str> = Vec::new();
    for part in row.section().split('.').filter(|part| !part.is_empty()) {
        inside.push(part);
        let path = inside.join(".");
        let list =
            ROWS.iter().any(|row| row.path == path && matches!(row.key_type, KeyType::TableList));
        text += &if list { format!("[[{path}]]\n") } else { format!("[{path}]\n") };
        // Missing required keys would be mistakes of their own.
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
        ("listen = 8484", "`listen` is an integer"),
        ("listen = ''", "`listen` is empty"),
        ("listen = '8484'", "an address and a port"),
        ("listen = '[::]:1'", "put a reverse proxy in front"),
        ("data_dir = '~other'", "`~/` for your home directory"),
        ("log = 'debug'", "expected a table, [log]"),
        ("log.level = 'Info'", "did you mean `info`?"),
        ("log.format = 'xml'", "one of `text`, `json`"),
        ("keep_alive = '15'", "`keep_alive` is `15`"),
        ("keep_alive = '0s'", "longer than zero"),
        ("keep_alive = 1.5", "`keep_alive` is a float"),
        ("allowed_hosts = 'x'", "a list of strings"),
        ("allowed_hosts = ['https://x']", "expected a host name"),
        ("allowed_hosts = ['x', 1]", "`allowed_hosts` holds an integer"),
        ("cors_origins = ['app.example']", "did you mean `https://app.example`?"),
        ("cors_origins = ['http://app.example/']", "did you mean `http://app.example`?"),
        ("thinking = 1", "expected a table, [thinking]"),
        ("thinking.policy = 'sesion'", "did you mean `session`?"),
        ("thinking.orphan_threshold = '0m'", "longer than zero"),
        ("thinking.memory_limit = '1023KiB'", "at least `1MiB`"),
        ("thinking.memory_limit = 'lots'", "a size"),
        ("limits.body = -1", "a size"),
        ("limits.json_depth = 7", "an integer from 8 to 1024"),
        ("limits.json_depth = 1025", "an integer from 8 to 1024"),
        ("limits.json_depth = '9'", "without quotes"),
        ("limits.streams = 0", "an integer from 1 to"),
        ("debug_log.enabled = 'yes'", "`true` or `false`"),
        ("backend = 'glm'", "a list of tables, each under [[backend]]"),
        ("backend = ['glm']", "expected a table"),
        ("[backend]\nname = 'x'", "a list of tables, each under [[backend]]"),
        ("route.default = 'glm'", "no backend is named `glm`"),
        ("projects.provider = 'glm'", "no backend is named `glm`"),
        ("projects.mode = 'seald'", "did you mean `sealed`?"),
        ("route.default = 'anthropc'", "did you mean `anthropic`?"),
        ("route.fallback = ['simulatr']", "did you mean `simulator`?"),
        ("route.rules = [{ model = 'x', backend = 'y' }]", "no backend is named `y`"),
        ("route.rules = [{ model = 'x' }]", "`backend` is missing in [[route.rules]]"),
        ("route.rules = [{ backend = 'simulator' }]", "`model` is missing in [[route.rules]]"),
        ("route.rules = [{ model = '*x', backend = 'simulator' }]", "the model pattern is `*x`"),
        ("route.rules = [{ model = 'a**', backend = 'simulator' }]", "one `*` at the end"),
        (
            "route.rules = [{ model = 'x', backend = 'simulator', fallback = ['y'] }]",
            "no backend is named `y`",
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
        ("name = 'glm'\ndialect = 'simulator'", "the first is at line 3"),
        ("name = 'GLM'\ndialect = 'simulator'", "did you mean `glm`?"),
        ("name = 'a b'\ndialect = 'simulator'", "only `a-z`, `0-9`, `_` and `-`"),
        ("dialect = 'simulator'", "`name` is missing in [[backend]]"),
        ("name = 'x'", "`dialect` is missing in [[backend]]"),
        ("name = 'x'\ndialect = 'antropic'", "did you mean `anthropic`?"),
        (
            "name = 'x'\ndialect = 'claude'",
            "one of `anthropic`, `gemini`, `ollama`, `openai_chat`, `openai_responses`, `simulator`",
        ),
        ("name = 'x'\ndialect = 'anthropic'", "expected a line `base_url = \"https://...\"`"),
        ("name = 'x'\ndialect = 'anthropic'\nbase_url = 'api.z.ai'", "`https://api.z.ai`"),
        (
            "name = 'x'\ndialect = 'anthropic'\nbase_url = 'ftp://api.z.ai'",
            "starts with `https://`",
        ),
        (
            "name = 'x'\ndialect = 'anthropic'\nbase_url = 'http://h/v1/messages'",
            "write `http://h`",
        ),
        ("name = 'x'\ndialect = 'simulator'\nbase_url = 'http://h'", "no effect on the simulator"),
        ("name = 'x'\ndialect = 'simulator'\nauth = 'pass'", "expected `passthrough`"),
        ("name = 'x'\ndialect = 'simulator'\nshare_caller_key = true", "use it with `auth"),
        ("name = 'x'\ndialect = 'simulator'\nmodels = { 'a*b' = 'c' }", "model pattern is `a*b`"),
        ("name = 'x'\ndialect = 'simulator'\nmodels = { 'a' = 'c*' }", "a name without `*`"),
        ("name = 'x'\ndialect = 'simulator'\nmodels = { 'a' = 1 }", "`models` holds an integer"),
        (
            "name = 'x'\ndialect = 'simulator'\nthinking_compat = { budget = 2000 }",
            "`mode` is missing",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nthinking_compat = { mode = 'budget', budget = 1023 }",
            "an integer from 1024",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\nreplay = 'latest-turn'",
            "did you mean `latest_turn`?",
        ),
        ("name = 'x'\ndialect = 'simulator'\nfamily = 'qwen-33'", "9:10: unknown family `qwen-33`"),
        (
            "name = 'x'\ndialect = 'simulator'\nfamily = 'gptoss'",
            "did you mean `gpt-oss`? the families are `",
        ),
        ("name = 'x'\ndialect = 'simulator'\nfamily = 'atuo'", "did you mean `auto`?"),
        (
            "name = 'x'\ndialect = 'simulator'\nfamily = 'zzz'",
            "expected `auto`, `none` or the name of a family\n      = the families are `",
        ),
        ("name = 'x'\ndialect = 'simulator'\nfamily = ''", "`family` is empty"),
        ("name = 'x'\ndialect = 'simulator'\nfamily = ['qwen3']", "expected a string in quotes"),
        ("name = 'x'\ndialect = 'simulator'\nreasoning_format = 'splt'", "did you mean `split`?"),
        (
            "name = 'x'\ndialect = 'simulator'\nreasoning_format = 'xml'",
            "one of `split`, `raw`, `none`",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\non_tool_parse_error = 'errors'",
            "did you mean `error`?",
        ),
        (
            "name = 'x'\ndialect = 'simulator'\non_tool_parse_error = false",
            "one of `error`, `text`",
        ),
        ("name = 'x'\ndialect = 'simulator'\nretries = -1", "an integer from 0 to 10"),
        ("name = 'x'\ndialect = 'simulator'\ntimeouts.idle = 'never'", "expected a duration"),
    ] {
        each_has_one_mistake(&[(&format!("{BACKEND}[[backend]]\n{lines}\n"), words)]);
    }
}

#[test]
fn unknown_family_lists_all_families() {
    let mistakes = bad(&format!("{BACKEND}family = 'zzz'\n"), &[]);
    for family in throughline_codec::text::FAMILIES {
        let name = format!("`{}`", family.name);
        assert!(mistakes[0].contains(&name), "{}\nlacks: {name}", mistakes[0]);
    }
}

#[test]
fn second_credential_is_rejected() {
    let text =
        format!("{BACKEND}api_key = 'x'\napi_key_env = 'ZAI_API_KEY'\nauth = 'passthrough'\n");
    let mistakes = bad(&text, &[]);
    assert_eq!(mistakes.len(), 2);
    assert!(
        mistakes[0].contains("`api_key` is set together with `api_key_env`"),
        "{}",
        mistakes[0]
    );
    assert!(mistakes[1].contains("`auth` is set together with `api_key_env`"), "{}", mistakes[1]);
}

#[test]
fn api_keys_are_never_shown() {
    let config = good(&format!("{BACKEND}api_key = 'do-not-show'\n"));
    assert!(!format!("{config:?}").contains("do-not-show"));
    assert_eq!(config.backends[0].auth, Auth::Key("do-not-show".to_owned()));
    for line in [
        "api_key = 'do-not-show\u{e9}'",
        "api_key = 'do-not-show', retries = 1",
        "api_key = do-not-show",
        "api_kye = 'do-not-show'",
        "api_key_env = 'do-not-show'",
        "auth = 'sk-do-not-show'",
        "family = 'sk-do-not-show'",
        "api_key = ['do-not-show']",
    ] {
        let output = read_with(&format!("{BACKEND}{line}\n"), &[]).expect_err(line);
        assert!(!format!("{output} {output:?}").contains("do-not-show"), "{output}");
    }
    let env = [("THROUGHLINE_BACKEND__GLM__API_KEY", "do-not-show\u{7}")];
    let output = read_with(BACKEND, &env).unwrap_err().to_string();
    assert!(!output.contains("do-not-show"), "{output}");
}

#[test]
fn invalid_toml_is_one_mistake() {
    let output = read_with("listen = \"x\"\nkeep_alive = 15s\n", &[("THROUGHLINE_X", "1")]);
    let output = output.unwrap_err().to_string();
    assert!(output.starts_with("throughline.toml:2:14: not valid TOML: "), "{output}");
    assert!(output.ends_with("\n1 mistake in throughline.toml; nothing was started"), "{output}");
    each_has_one_mistake(&[
        ("listen = 'x'\nlisten = 'y'", "throughline.toml:2:1: duplicate key `listen`"),
        ("keep_alive =", ":1:13: not valid TOML"),
        ("[thinking", ":1:10: not valid TOML"),
        ("listen = 'x", ":1:12: not valid TOML"),
    ]);
}

#[test]
fn locations_count_characters_in_unusual_lines() {
    each_has_one_mistake(&[
        ("data_dir = 'd'\r\nlissten = 'x'\r\n", "    2 | lissten = 'x'\n      | ^^^^^^^"),
        ("allowed_hosts = [\n\t'https://é'\n]", ":2:2:"),
        ("allowed_hosts = [\n\t'https://é'\n]", "\n      | \t^^^^^^^^^^^ "),
        ("log = { format = \"ü\\u001b[0m\" }", r"`format` is `ü\u{1b}[0m`"),
        ("\u{feff}lissten = 'x'", ":1:1: unknown key `lissten`"),
    ]);
    let long = format!("lissten = '{}'", "x".repeat(500));
    assert!(bad(&long, &[])[0].lines().all(|line| line.chars().count() < 140));
}

#[test]
fn missing_key_is_a_mistake_only_of_the_default_backend() {
    let backend = |name: &str| {
        format!("[[backend]]\nname = '{name}'\ndialect = 'simulator'\napi_key_env = 'NO_SUCH'\n")
    };
    let with_default = |name: &str| {
        format!(
            "[[backend]]\nname = 'own'\ndialect = 'simulator'\n{}[route]\ndefault = '{name}'",
            backend("other")
        )
    };
    let config = good(&with_default("own"));
    assert_eq!(config.backends[1].auth, Auth::Missing("NO_SUCH".to_owned()));
    assert_eq!(config.notes, ["backend `other` is off: environment variable `NO_SUCH` is not set"]);
    let [message] = &bad(&with_default("other"), &[])[..] else { panic!("one mistake") };
    assert!(message.contains(":7:15: environment variable `NO_SUCH` is not set"), "{message}");
    assert!(message.contains("`route.default`"), "{message}");
    // Without `route.default`, the first backend that is on is the default.
    let own = "[[backend]]\nname = 'own'\ndialect = 'simulator'\n";
    assert_eq!(good(&(backend("other") + own)).route.default, "own");
    assert_eq!(bad(&(backend("other") + &backend("more")), &[]).len(), 1);
    let misspelled = backend("other").replace("NO_SUCH", "ANTHROPIC_APIKEY");
    let hint = "did you mean `ANTHROPIC_API_KEY`?";
    assert!(bad(&misspelled, &[])[0].contains(hint));
    assert!(good(&(misspelled + own)).notes[0].contains(hint));
}
