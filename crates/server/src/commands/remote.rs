//! The commands that ask a running gateway: `backends`, `switch`, `stats`, `turns`.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use throughline_gateway::upstream::{Client, SendError, whole};

use super::{Failure, listen, print};
use crate::cli::Remote;

const WAIT: Duration = Duration::from_secs(10);

/// Shows the backends.
pub async fn backends(remote: &Remote) -> Result<(), Failure> {
    let answer = ask(remote, Method::GET, "/admin/backends", None).await?;
    show(remote, &answer, |answer| {
        let active = &answer["active"];
        let rows = list(&answer["backends"]).map(|backend| {
            vec![
                if backend["name"] == *active { "*" } else { "" }.to_owned(),
                text(&backend["name"]),
                match backend["variant"].as_str() {
                    None | Some("") => text(&backend["dialect"]),
                    Some(variant) => format!("{} ({variant})", text(&backend["dialect"])),
                },
                if backend["healthy"] == true { "yes" } else { "no" }.to_owned(),
                text(&backend["domain"]),
                text(&backend["base_url"]),
            ]
        });
        table(&["", "name", "dialect", "reached", "domain", "base url"], rows)
    });
    Ok(())
}

/// Makes another backend the active one.
pub async fn switch(remote: &Remote, name: &str) -> Result<(), Failure> {
    let body = serde_json::json!({ "backend": name });
    let answer = ask(remote, Method::POST, "/admin/switch", Some(body)).await?;
    show(remote, &answer, |answer| {
        format!("active: {} (was {})", text(&answer["active"]), text(&answer["previous"]))
    });
    Ok(())
}

/// Shows what the thinking memory holds.
pub async fn stats(remote: &Remote, lineage: Option<&str>) -> Result<(), Failure> {
    let path = match lineage {
        Some(lineage) => format!("/admin/thinking?lineage={}", escape(lineage)),
        None => "/admin/thinking".to_owned(),
    };
    let answer = ask(remote, Method::GET, &path, None).await?;
    show(remote, &answer, |answer| {
        let names = [
            ("total", "blocks in use"),
            ("confirmed", "  sent back by a client"),
            ("unconfirmed", "  not sent back yet"),
            ("current_session", "  of the present session"),
            ("old_session", "  of an older session"),
            ("session", "highest session number"),
            ("lineages", "conversations"),
            ("bytes", "bytes of memory"),
            ("restored", "blocks put back"),
            ("tried", "unknown blocks tried"),
            ("refused", "blocks refused"),
        ];
        let rows = names.iter().map(|(name, what)| vec![(*what).to_owned(), text(&answer[*name])]);
        table(&["thinking memory", ""], rows)
    });
    Ok(())
}

/// Shows the recent turns.
pub async fn turns(remote: &Remote, limit: usize) -> Result<(), Failure> {
    let path = format!("/admin/turns?limit={limit}");
    let answer = ask(remote, Method::GET, &path, None).await?;
    show(remote, &answer, |answer| {
        let rows = list(&answer["turns"]).map(|turn| {
            let losses: Vec<String> = list(&turn["losses"])
                .map(|loss| {
                    let amount =
                        if loss["count"].is_null() { &loss["setting"] } else { &loss["count"] };
                    format!("{}={}", text(&loss["kind"]), text(amount))
                })
                .collect();
            vec![
                text(&turn["id"]),
                text(&turn["lineage"]),
                text(&turn["backend"]),
                text(&turn["model"]),
                text(&turn["status"]),
                text(&turn["end"]),
                text(&turn["ms"]["first_byte"]),
                text(&turn["ms"]["total"]),
                blocks(turn).to_string(),
                losses.join(" "),
            ]
        });
        table(
            &[
                "turn", "lineage", "backend", "model", "status", "end", "first ms", "total ms",
                "blocks", "losses",
            ],
            rows,
        )
    });
    Ok(())
}

/// How many thinking blocks a turn had, shown or not.
fn blocks(turn: &Value) -> u64 {
    list(&turn["blocks"]).count() as u64 + turn["blocks_omitted"].as_u64().unwrap_or_default()
}

/// Asks the gateway's own side, and reads its JSON.
pub async fn ask(
    remote: &Remote,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Failure> {
    let (base, mistaken) = match &remote.url {
        Some(url) => (url.trim_end_matches('/').to_owned(), false),
        None => {
            let (listen, mistaken) = listen(remote.config.as_deref())?;
            (format!("http://{listen}"), mistaken)
        }
    };
    let failed = |what: String| {
        Failure::Failed(format!("{what}; is `throughline serve` running at {base}?"))
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("{base}{path}"))
        .header("content-type", "application/json")
        .body(whole(body.map_or_else(Bytes::new, |body| body.to_string().into())))
        .map_err(|error| Failure::Usage(format!("`{base}` is not an address: {error}")))?;
    let response = Client::new(Duration::from_secs(3))
        .send("gateway", request, WAIT)
        .await
        .map_err(|error| {
            let why = why(&error);
            let mut what =
                format!("cannot reach a gateway at {base}: {why}; is `throughline serve` running?");
            if mistaken {
                what.push_str(" The configuration has mistakes; `throughline doctor` names them.");
            }
            Failure::Failed(what)
        })?;
    let status = response.status();
    let body = tokio::time::timeout(WAIT, response.into_body().collect())
        .await
        .map_err(|_| failed("the gateway did not finish its answer".into()))?
        .map_err(|error| failed(error.to_string()))?
        .to_bytes();
    let answer: Value = serde_json::from_slice(&body)
        .map_err(|_| failed(format!("the answer ({status}) is not from a gateway")))?;
    if !status.is_success() {
        return Err(Failure::Failed(text(&answer["error"]["message"])));
    }
    Ok(answer)
}

/// Why there was no answer, in the system's words without its numbers.
fn why(error: &SendError) -> String {
    if let SendError::TimedOut { waited, .. } = error {
        return format!("no answer within {} s", waited.as_secs());
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    match inner.downcast_ref::<std::io::Error>() {
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => inner.to_string(),
    }
}

/// A value as it may stand in a query.
pub fn escape(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02x}"),
        })
        .collect()
}

fn show(remote: &Remote, answer: &Value, readable: impl FnOnce(&Value) -> String) {
    if remote.json {
        print(&answer.to_string());
    } else {
        print(&readable(answer));
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Columns as wide as their widest cell.
pub fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines: Vec<Vec<String>> = vec![head.iter().map(|cell| (*cell).to_owned()).collect()];
    lines.extend(rows);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    lines
        .iter()
        .map(|line| {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect::<Vec<_>>()
        .join("\n")
}
