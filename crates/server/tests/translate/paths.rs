//! Paths, pins and keys of requests.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, ok_reply};

use crate::support::{
    BINARY, BedOptions, Mismatches, TestBed, foreign_clients, new_client, upstream,
};
use crate::test_client::{ClientRequest, send};

const ROWS: [&str; 4] = ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"];

fn plain_request(dialect: &str) -> ClientRequest {
    let mut test_client = new_client(dialect);
    test_client.push_user("ponder this");
    test_client.next_request("some-model", false)
}

/// Returns the key header of an upstream.
fn key_header(row: &str, key: &str) -> (&'static str, String) {
    match upstream(row).dialect {
        "anthropic" => ("x-api-key", key.to_owned()),
        "gemini" => ("x-goog-api-key", key.to_owned()),
        _ => ("authorization", format!("Bearer {key}")),
    }
}

#[tokio::test]
async fn gemini_is_served_on_all_of_its_paths_and_pins() {
    let mut mismatches = Mismatches::default();
    let bed = TestBed::over(&["anthropic, budget", "deepseek-v4"]).await;
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
                let client = &bed.gateway.client;
                let answer = client.send(Method::POST, &path, &headers, body.to_string()).await;
                mismatches.check_equal(&path, answer.status, 200);
                mismatches.check_equal(&path, answer.header("x-throughline-backend"), backend);
                let json = method != "streamGenerateContent?alt=sse";
                let kind = if json { "application/json" } else { "text/event-stream" };
                let reported = answer.header("content-type").starts_with(kind);
                mismatches.check(reported, format!("{path}: {:?}", answer.headers));
                if json {
                    let value: Value = answer.json();
                    let list = value.is_array() == (method == "streamGenerateContent");
                    mismatches.check(list, format!("{path}: {value}"));
                }
            }
        }
    }
    bed.expect_no_refusals().await;
    mismatches.assert_none();
}

/// Covers: X-26
#[tokio::test]
async fn backend_key_replaces_the_callers_key_in_the_backends_form() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            backend: "api_key = \"of-the-house\"",
            ..BedOptions::default()
        })
        .await;
        for dialect in foreign_clients(row) {
            let case = format!("{dialect} over {row}");
            let mut request = plain_request(dialect);
            request.headers = vec![
                ("x-api-key", "caller-secret"),
                ("authorization", "Bearer caller-secret"),
                ("x-goog-api-key", "caller-secret"),
                ("x-throughline-conversation", "caller-secret"),
                ("x-throughline-anything", "caller-secret"),
                ("cookie", "caller-secret"),
            ];
            if dialect == "gemini" {
                request.path.push_str("?key=caller-secret");
            }
            send(&request, &bed.gateway.client).await.expect_ok();
            let seen = bed.last_received(0).await;
            let (name, key) = key_header(row, "of-the-house");
            mismatches.check_equal(&case, seen.header(name), Some(key.as_str()));
            let whole = format!("{:?} {} {} {}", seen.headers, seen.path, seen.query, seen.body);
            mismatches.check(!whole.contains("caller-secret"), format!("{case}: {whole}"));
            mismatches.check(!whole.contains("x-throughline"), format!("{case}: {whole}"));
        }
        let log = bed.gateway.log();
        mismatches.check(!log.contains("caller-secret"), format!("{row}: {log}"));
        mismatches.check(!log.contains("of-the-house"), format!("{row}: {log}"));
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn callers_key_is_sent_in_the_backends_form() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            backend: "auth = \"passthrough\"",
            ..BedOptions::default()
        })
        .await;
        for dialect in foreign_clients(row) {
            let forms: &[(&str, &str)] = match dialect {
                "anthropic" => &[("x-api-key", "sk-1+2/3="), ("authorization", "Bearer sk-1+2/3=")],
                "gemini" => &[("x-goog-api-key", "sk-1+2/3="), ("?key", "sk-1%2B2%2F3%3D")],
                _ => {
                    &[("authorization", "Bearer sk-1+2/3="), ("authorization", "bearer sk-1+2/3=")]
                }
            };
            for (name, value) in forms {
                let case = format!("{dialect} over {row}: {name} {value}");
                let mut request = plain_request(dialect);
                if *name == "?key" {
                    request.headers = Vec::new();
                    request.path.push_str(&format!("?key={value}"));
                } else {
                    request.headers = vec![(name, value)];
                }
                send(&request, &bed.gateway.client).await.expect_ok();
                let seen = bed.last_received(0).await;
                let (name, key) = key_header(row, "sk-1+2/3=");
                mismatches.check_equal(&case, seen.header(name), Some(key.as_str()));
                let keys = ["x-api-key", "authorization", "x-goog-api-key"];
                let count = keys.iter().filter(|name| seen.header(name).is_some());
                mismatches.check_equal(&case, count.count(), 1);
                mismatches.check(!seen.query.contains("sk-"), format!("{case}: {}", seen.query));
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// A model name from the caller must not reach another path of the provider.
#[tokio::test]
async fn model_name_cannot_change_the_upstream_path() {
    let upstream = RawUpstream::start().await;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"gemini\"\nbase_url = \"{}/tenant\"\n",
        upstream.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let request = |path: String, body: Value| {
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
        let answer = request("/v1/chat/completions".into(), body).await;
        assert_eq!(answer.status, 400, "{model}: {}", answer.text());
        assert!(answer.text().contains("model: "), "{}", answer.text());
    }
    for path in [
        "/v1beta/models/..%2F..%2Fother:generateContent",
        "/v1beta/models/%2e%2e/%2e%2e/other:generateContent",
        "/v1beta/../other/models/g:generateContent",
        "/v1/%2e%2e/files",
    ] {
        let answer = request(path.into(), contents.clone()).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
    }
    let reply = br#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Yes."}]},"finishReason":"STOP"}]}"#;
    for (model, encoded) in [
        ("g?key=stolen", "g%3Fkey%3Dstolen"),
        ("g#x", "g%23x"),
        ("g/x", "g/x"),
        ("g%2fx", "g%252fx"),
        ("g:countTokens", "g%3AcountTokens"),
        ("gemini-2.5", "gemini-2.5"),
    ] {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let (answer, target) = tokio::join!(request("/v1/chat/completions".into(), body), async {
            let exchange = upstream.next().await;
            let target = exchange.target.clone();
            exchange.answer(&ok_reply("application/json", "", reply)).await;
            target
        });
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let path = format!("/tenant/v1beta/models/{encoded}:generateContent");
        assert_eq!(target, path);
    }
}
