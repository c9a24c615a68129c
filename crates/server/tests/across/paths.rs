//! Paths, pins and keys: where a request may come in, and what of its head goes on.

use http::Method;
use serde_json::{Value, json};

use throughline_testkit::Gateway;

use crate::bare::{Upstream, whole};
use crate::speaker::{Ask, send};
use crate::support::{BINARY, CLIENTS, House, Plan, Wrong, client, upstream};

const ROWS: [&str; 4] = ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"];

fn asking(dialect: &str) -> Ask {
    let mut speaker = client(dialect);
    speaker.user("ponder this");
    speaker.ask("some-model", false)
}

/// Where an upstream wants its key, and how.
fn key_header(row: &str, key: &str) -> (&'static str, String) {
    match upstream(row).dialect {
        "anthropic" => ("x-api-key", key.to_owned()),
        "gemini" => ("x-goog-api-key", key.to_owned()),
        _ => ("authorization", format!("Bearer {key}")),
    }
}

#[tokio::test]
async fn gemini_is_served_under_all_of_its_paths_and_pins() {
    let mut wrong = Wrong::default();
    let house = House::over(&["anthropic, budget", "deepseek-v4"]).await;
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "ponder this"}]}]});
    let headers = [("content-type", "application/json"), ("x-goog-api-key", "k")];
    for version in ["/v1beta", "/v1", ""] {
        for method in [
            "generateContent",
            "streamGenerateContent?alt=sse",
            "streamGenerateContent",
            "countTokens",
        ] {
            for (pin, backend) in [("", "a"), ("/b/b", "b"), ("/b/a", "a")] {
                let path = format!("{pin}{version}/models/some-model:{method}");
                let client = &house.gateway.client;
                let answer = client.send(Method::POST, &path, &headers, body.to_string()).await;
                wrong.unless_equal(&path, answer.status, 200);
                wrong.unless_equal(&path, answer.header("x-throughline-backend"), backend);
                let json = method != "streamGenerateContent?alt=sse";
                let kind = if json { "application/json" } else { "text/event-stream" };
                let told = answer.header("content-type").starts_with(kind);
                wrong.unless(told, format!("{path}: {:?}", answer.headers));
                if json {
                    let value: Value = answer.json();
                    let list = value.is_array() == (method == "streamGenerateContent");
                    wrong.unless(list, format!("{path}: {value}"));
                }
            }
        }
    }
    house.end_in_peace().await;
    wrong.end();
}

/// Covers: X-26
#[tokio::test]
async fn a_backends_own_key_goes_out_in_its_form_and_the_callers_stays_here() {
    let mut wrong = Wrong::default();
    for row in ROWS {
        let house = House::build(&Plan {
            upstreams: &[row],
            backend: "api_key = \"of-the-house\"",
            ..Plan::default()
        })
        .await;
        for dialect in CLIENTS {
            if dialect == upstream(row).dialect {
                continue;
            }
            let what = format!("{dialect} over {row}");
            let mut ask = asking(dialect);
            ask.headers = vec![
                ("x-api-key", "caller-secret"),
                ("authorization", "Bearer caller-secret"),
                ("x-goog-api-key", "caller-secret"),
                ("x-throughline-conversation", "caller-secret"),
                ("x-throughline-anything", "caller-secret"),
                ("cookie", "caller-secret"),
            ];
            if dialect == "gemini" {
                ask.path.push_str("?key=caller-secret");
            }
            send(&ask, &house.gateway.client).await.good();
            let seen = house.last(0).await;
            let (name, key) = key_header(row, "of-the-house");
            wrong.unless_equal(&what, seen.header(name), Some(key.as_str()));
            let whole = format!("{:?} {} {} {}", seen.headers, seen.path, seen.query, seen.body);
            wrong.unless(!whole.contains("caller-secret"), format!("{what}: {whole}"));
            wrong.unless(!whole.contains("x-throughline"), format!("{what}: {whole}"));
        }
        let log = house.gateway.log();
        wrong.unless(!log.contains("caller-secret"), format!("{row}: {log}"));
        wrong.unless(!log.contains("of-the-house"), format!("{row}: {log}"));
        house.end_in_peace().await;
    }
    wrong.end();
}

#[tokio::test]
async fn a_callers_key_is_put_into_the_form_of_the_backend_it_goes_to() {
    let mut wrong = Wrong::default();
    for row in ROWS {
        let house = House::build(&Plan {
            upstreams: &[row],
            backend: "auth = \"passthrough\"",
            ..Plan::default()
        })
        .await;
        for dialect in CLIENTS {
            if dialect == upstream(row).dialect {
                continue;
            }
            let forms: &[(&str, &str)] = match dialect {
                "anthropic" => &[("x-api-key", "sk-1+2/3="), ("authorization", "Bearer sk-1+2/3=")],
                "gemini" => &[("x-goog-api-key", "sk-1+2/3="), ("?key", "sk-1%2B2%2F3%3D")],
                _ => {
                    &[("authorization", "Bearer sk-1+2/3="), ("authorization", "bearer sk-1+2/3=")]
                }
            };
            for (name, value) in forms {
                let what = format!("{dialect} over {row}: {name} {value}");
                let mut ask = asking(dialect);
                if *name == "?key" {
                    ask.headers = Vec::new();
                    ask.path.push_str(&format!("?key={value}"));
                } else {
                    ask.headers = vec![(name, value)];
                }
                send(&ask, &house.gateway.client).await.good();
                let seen = house.last(0).await;
                let (name, key) = key_header(row, "sk-1+2/3=");
                wrong.unless_equal(&what, seen.header(name), Some(key.as_str()));
                let keys = ["x-api-key", "authorization", "x-goog-api-key"];
                let count = keys.iter().filter(|name| seen.header(name).is_some());
                wrong.unless_equal(&what, count.count(), 1);
                wrong.unless(!seen.query.contains("sk-"), format!("{what}: {}", seen.query));
            }
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Whatever a caller calls its model, it asks for an answer of one and for nothing else.
#[tokio::test]
async fn a_models_name_stays_in_its_place_of_the_path() {
    let upstream = Upstream::start().await;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"gemini\"\nbase_url = \"{}/tenant\"\n",
        upstream.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let ask = |path: String, body: Value| {
        let client = &gateway.client;
        async move {
            let headers = [("content-type", "application/json")];
            client.send(Method::POST, &path, &headers, body.to_string()).await
        }
    };
    let contents = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    let refused =
        ["..", "../../other", "a/../../../other", "./g", "%2e%2e/x", "..%2fx", "a\\..\\b"];
    for model in refused {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let answer = ask("/v1/chat/completions".into(), body).await;
        assert_eq!(answer.status, 400, "{model}: {}", answer.text());
        assert!(answer.text().contains("model: "), "{}", answer.text());
    }
    for path in [
        "/v1beta/models/..%2F..%2Fother:generateContent",
        "/v1beta/models/%2e%2e/%2e%2e/other:generateContent",
        "/v1beta/../other/models/g:generateContent",
        "/v1/%2e%2e/files",
    ] {
        let answer = ask(path.into(), contents.clone()).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
    }
    let reply = br#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Yes."}]},"finishReason":"STOP"}]}"#;
    for (model, place) in [
        ("g?key=stolen", "g%3Fkey%3Dstolen"),
        ("g#x", "g%23x"),
        ("g/x", "g/x"),
        ("g%2fx", "g%252fx"),
        ("g:countTokens", "g%3AcountTokens"),
        ("gemini-2.5", "gemini-2.5"),
    ] {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let (answer, target) = tokio::join!(ask("/v1/chat/completions".into(), body), async {
            let exchange = upstream.next().await;
            let target = exchange.target.clone();
            exchange.answer(&whole("application/json", "", reply)).await;
            target
        });
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let path = format!("/tenant/v1beta/models/{place}:generateContent");
        assert_eq!(target, path);
    }
}
