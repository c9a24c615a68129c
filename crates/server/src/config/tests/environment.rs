//! Overrides from environment and command line, and defaults without a file.

use std::path::PathBuf;
use std::time::Duration;

use super::*;

#[test]
fn variables_override_keys() {
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
            ("THROUGHLINE_ROUTE__RULES", "[{ model = 'x', backend = 'glm' }]"),
            ("THROUGHLINE_BACKEND__GLM__API_KEY", "12345"),
            ("THROUGHLINE_BACKEND__GLM__TIMEOUTS__IDLE", "9s"),
            ("THROUGHLINE_BACKEND__GLM__MODELS", "{ '*' = 'glm-5' }"),
            ("THROUGHLINE_CONFIG", "x"),
            ("THROUGHLINE_KEYRING", "x"),
            ("THROUGHLINE_RECOVERY_CODE", "x"),
            ("THROUGHLINE_URL", "x"),
        ],
    );
    let config = config.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(config.listen, "localhost:0");
    assert_eq!(config.data_dir, PathBuf::from("state"));
    assert_eq!(config.log, Log { level: Level::Debug, format: Format::Json });
    assert_eq!(config.keep_alive, Duration::from_millis(250));
    assert_eq!(config.allowed_hosts, ["a.example"]);
    assert_eq!(config.thinking.policy, Policy::Session);
    assert_eq!((config.limits.body, config.limits.streams), (1 << 20, 7));
    assert!(config.debug_log.enabled);
    assert_eq!(config.route.rules.len(), 1);
    let glm = &config.backends[0];
    assert_eq!(glm.auth, Auth::Key("12345".to_owned()));
    assert_eq!(glm.retries, 1);
    assert_eq!(glm.timeouts.idle, Duration::from_secs(9));
    assert_eq!(glm.models, [("*".to_owned(), "glm-5".to_owned())]);
}

#[test]
fn mistakes_in_variables_name_the_variable() {
    for (name, value, expected) in [
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
            "env THROUGHLINE_LIMITS__QUEUE: `queue` is not available yet\n      = remove it until a release supports it",
        ),
        (
            "THROUGHLINE_REDIS__URL",
            "ada:s3cret@host",
            "env THROUGHLINE_REDIS__URL: `url` names no Redis server\n      = expected \"redis://user:password@host:6379/0\"",
        ),
        (
            "THROUGHLINE_BACKEND__GLM__RETRYS",
            "1",
            "env THROUGHLINE_BACKEND__GLM__RETRYS: no setting has this name\n      = expected `THROUGHLINE_BACKEND__<NAME>__<KEY>` with one of the backends `glm`\n      = did you mean `THROUGHLINE_BACKEND__GLM__RETRIES`?",
        ),
        (
            "THROUGHLINE_BACKEND__GLM__RETRIES",
            "many",
            "env THROUGHLINE_BACKEND__GLM__RETRIES: `retries` is a string\n      = expected an integer, without quotes",
        ),
    ] {
        assert_eq!(bad(BACKEND, &[(name, value)]), [expected], "{name}={value}");
    }
    let output = read_with("", &[("THROUGHLINE_LISTEN", "x")]).unwrap_err().to_string();
    assert!(output.ends_with("1 mistake in the environment; nothing was started"), "{output}");
}

#[test]
fn variable_that_matches_two_backends_is_rejected() {
    let backend = |name: &str| format!("[[backend]]\nname = '{name}'\ndialect = 'simulator'\n");
    let text = backend("a-b") + &backend("a_b") + &backend("a__b") + &backend("a");
    let mistakes = bad(&text, &[("THROUGHLINE_BACKEND__A_B__RETRIES", "1")]);
    assert_eq!(mistakes.len(), 1);
    assert!(mistakes[0].contains("matches several backends: `a-b`, `a_b`"), "{}", mistakes[0]);
    let config = read_with(&text, &[("THROUGHLINE_BACKEND__A__B__RETRIES", "1")]).unwrap();
    let retries: Vec<u32> = config.backends.iter().map(|backend| backend.retries).collect();
    assert_eq!(retries, [0, 0, 1, 0]);
}

#[test]
fn flags_override_file_and_environment() {
    let source =
        Source { name: "x".to_owned(), text: "listen = 'wrong'\ndata_dir = 'a'".to_owned() };
    let env = environment(&[("THROUGHLINE_DATA_DIR", "b")]);
    let overrides =
        Overrides { listen: Some("[::1]:0".to_owned()), data_dir: Some(PathBuf::from("~/c")) };
    let config = read(Some(&source), env, overrides).unwrap();
    assert_eq!(
        (config.listen.as_str(), config.data_dir),
        ("[::1]:0", PathBuf::from("/users/ada/c"))
    );

    let overrides = Overrides { listen: Some("0.0.0.0:1".to_owned()), data_dir: None };
    let output = read(None, [], overrides).unwrap_err().to_string();
    assert!(output.contains("--listen: `listen` is `0.0.0.0:1`"), "{output}");
    assert!(output.contains("env HOME: not set, so `data_dir` has no default"), "{output}");
    assert!(
        output.ends_with("2 mistakes in the environment and the command line; nothing was started")
    );
}

#[test]
fn backends_come_from_the_environment_without_a_file() {
    let from_env = |pairs: &[(&str, &str)]| {
        let env = pairs.iter().chain(&[("HOME", "/h")]);
        let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::from_env(env).unwrap()
    };
    let names = |config: &Config| -> Vec<String> {
        config.backends.iter().map(|backend| backend.name.clone()).collect()
    };

    let bare = from_env(&[("ANTHROPIC_API_KEY", " ")]);
    assert_eq!(
        (names(&bare), bare.route.default.as_str()),
        (vec!["simulator".to_owned()], "simulator")
    );

    let found = from_env(&[
        ("ANTHROPIC_API_KEY", "sk-ant-1"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:8484"),
        ("OPENAI_API_KEY", ""),
        ("OLLAMA_HOST", "localhost:8484"),
        ("THROUGHLINE_BACKEND__ANTHROPIC__RETRIES", "2"),
    ]);
    assert_eq!(names(&found), ["anthropic", "simulator"]);
    assert_eq!(found.route.default, "anthropic");
    // With one provider, a switch affects every model.
    assert_eq!(found.route.rules, []);
    assert_eq!(found.backends[0].base_url.as_deref(), Some("https://api.anthropic.com"));
    assert_eq!(found.backends[0].retries, 2);
    assert_eq!(
        found.notes,
        ["OLLAMA_HOST is the address of this gateway, so it is not used as a backend"]
    );

    let passed_on = from_env(&[
        ("ANTHROPIC_API_KEY", "sk-ant-1"),
        ("THROUGHLINE_BACKEND__ANTHROPIC__AUTH", "passthrough"),
    ]);
    assert_eq!(passed_on.backends[0].auth, Auth::Passthrough);
}

#[test]
fn ollama_server_of_the_environment_is_a_backend() {
    for (host, url) in [
        ("127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        (":8000", "http://127.0.0.1:8000"),
        ("[::]", "http://[::1]:11434"),
        ("gpu.lan", "http://gpu.lan:11434"),
        ("http://gpu.lan", "http://gpu.lan"),
        ("https://gpu.lan:9/ollama/", "https://gpu.lan:9/ollama"),
    ] {
        let env = [("HOME", "/h"), ("OLLAMA_HOST", host)];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::from_env(env).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let found = &config.backends[0];
        assert_eq!(found.base_url.as_deref(), Some(url), "{host}");
        assert_eq!((found.dialect, &found.auth), (Dialect("ollama"), &Auth::None));
        assert_eq!(config.route.default, "ollama");
        assert_eq!(config.route.rules, []);
    }
    let env = [("HOME", "/h"), ("OLLAMA_HOST", "gpu"), ("OPENAI_API_KEY", "k")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::from_env(env).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let rule = |model: &str| {
        let mut rules = config.route.rules.iter();
        let rule = rules.find(|rule| rule.model == model);
        rule.map(|rule| rule.backend.as_str())
    };
    assert_eq!(config.route.default, "openai");
    assert_eq!(rule("gpt-*"), Some("openai"));
    assert_eq!(rule("gpt-oss*"), Some("ollama"));
}

#[test]
fn every_key_adds_a_backend_and_rules_for_its_models() {
    let keys = [
        ("ANTHROPIC_API_KEY", "k-anthropic"),
        ("OPENAI_API_KEY", "k-openai"),
        ("GEMINI_API_KEY", "k-gemini"),
        ("DEEPSEEK_API_KEY", "k-deepseek"),
    ];
    let made = [
        ("anthropic", "https://api.anthropic.com", Dialect("anthropic"), ""),
        ("openai", "https://api.openai.com", Dialect("openai_responses"), "openai"),
        ("gemini", "https://generativelanguage.googleapis.com", Dialect("gemini"), ""),
        ("deepseek", "https://api.deepseek.com", Dialect("openai_chat"), "deepseek-v4"),
    ];
    let rules = [
        ("claude-*", 0),
        ("gpt-*", 1),
        ("o1*", 1),
        ("o3*", 1),
        ("o4*", 1),
        ("gemini-*", 2),
        ("deepseek-*", 3),
    ];
    // For every subset of the keys: the order stays, and each rule names an existing backend.
    for chosen in 0..1 << keys.len() {
        let is_chosen = |at: usize| chosen & (1 << at) != 0;
        let there: Vec<usize> = (0..keys.len()).filter(|at| is_chosen(*at)).collect();
        let env = there.iter().map(|at| keys[*at]).chain([("HOME", "/h")]);
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::from_env(env).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let (simulator, backends) = config.backends.split_last().unwrap();
        assert_eq!(simulator.name, "simulator");
        let found: Vec<_> = backends
            .iter()
            .map(|backend| {
                let url = backend.base_url.as_deref().unwrap();
                let variant = backend.variant.as_str();
                (backend.name.as_str(), url, backend.dialect, variant)
            })
            .collect();
        let expected: Vec<_> = there.iter().map(|at| made[*at]).collect();
        assert_eq!(found, expected);
        for (backend, at) in backends.iter().zip(&there) {
            assert_eq!(backend.auth, Auth::Key(keys[*at].1.to_owned()));
        }
        let first = there.first().map_or("simulator", |at| made[*at].0);
        assert_eq!(config.route.default, first);
        let found: Vec<_> = config
            .route
            .rules
            .iter()
            .map(|rule| (rule.model.as_str(), rule.backend.as_str()))
            .collect();
        let expected: Vec<_> = rules
            .iter()
            .filter(|(_, at)| there.len() > 1 && is_chosen(*at))
            .map(|(model, at)| (*model, made[*at].0))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(config.notes, Vec::<String>::new());
    }
}

#[test]
fn gemini_key_wins_over_the_google_key() {
    let key = |pairs: &[(&str, &str)]| {
        let env = pairs.iter().chain(&[("HOME", "/h")]);
        let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::from_env(env).unwrap().backends[0].auth.clone()
    };
    let (gemini, google) = (("GEMINI_API_KEY", "a"), ("GOOGLE_API_KEY", "b"));
    assert_eq!(key(&[google]), Auth::Key("b".to_owned()));
    assert_eq!(key(&[gemini, google]), Auth::Key("a".to_owned()));
}

#[test]
fn configured_route_has_no_default_rules() {
    for text in
        ["route.default = 'simulator'", "route.rules = []", "route.fallback = ['simulator']"]
    {
        let config = read_with(text, &[("OPENAI_API_KEY", "x")]).unwrap();
        assert_eq!(config.backends.len(), 3);
        assert_eq!(config.route.rules, [], "{text}");
    }
    let env = [("OPENAI_API_KEY", "x"), ("THROUGHLINE_ROUTE__DEFAULT", "openai")];
    let config = read_with("", &env).unwrap();
    assert_eq!((config.route.default.as_str(), config.route.rules.len()), ("openai", 0));
}

#[test]
fn unusable_key_is_reported_by_its_variable() {
    let mistakes = bad("", &[("GOOGLE_API_KEY", "do-not-show\u{7}")]);
    assert_eq!(mistakes.len(), 1);
    assert!(mistakes[0].starts_with("env GOOGLE_API_KEY: "), "{}", mistakes[0]);
    assert!(!mistakes[0].contains("do-not-show"), "{}", mistakes[0]);
}

#[test]
fn file_without_backends_has_the_default_ones() {
    for text in ["[route]\ndefault = 'simulator'", "backend = []\nroute.default = 'simulator'"] {
        let config = good(text);
        assert_eq!(config.backends.len(), 2);
        assert_eq!(config.route.default, "simulator");
    }
    assert_eq!(good(BACKEND).backends.len(), 1);
}

#[test]
fn surprising_settings_are_noted() {
    assert_eq!(good(BACKEND).notes, ["backend `glm` is called without a key"]);
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
            "fallback from `a` to `b` is never used: a caller's key is sent to another origin only with `share_caller_key = true` on `b`"
        ]
    );
}
