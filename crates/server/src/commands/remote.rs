//! The commands that query a running gateway: `backends`, `switch`, `stats`, `turns`. Others use
//! [`request`] too.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use throughline_gateway::upstream::{Client, SendError, whole};

use super::{Failure, listen, print, turn_table};
use crate::cli::Remote;

/// How long to wait for the gateway's answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `throughline backends`
pub async fn backends(remote: &Remote) -> Result<(), Failure> {
    let answer = request(remote, Method::GET, "/admin/backends", None).await?;
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
                reached(backend),
                text(&backend["domain"]),
                text(&backend["base_url"]),
            ]
        });
        table(&["", "name", "dialect", "reached", "domain", "base url"], rows)
    });
    Ok(())
}

/// Whether a backend can be used, and if not, why and until when.
fn reached(backend: &Value) -> String {
    if let Some(to_do) = backend["off"].as_str() {
        return format!("off: {to_do}");
    }
    let reached = if backend["healthy"] == true { "yes" } else { "no" };
    let cool_downs = list(&backend["cool_down"]).map(|cool_down| {
        let model = cool_down["model"].as_str().map(|model| format!("{model}: "));
        let (reason, seconds) = (text(&cool_down["reason"]), text(&cool_down["seconds"]));
        format!("{}{reason}, next try in {seconds} s", model.unwrap_or_default())
    });
    std::iter::once(reached.to_owned()).chain(cool_downs).collect::<Vec<_>>().join("; ")
}

/// `throughline switch`
pub async fn switch(remote: &Remote, name: &str) -> Result<(), Failure> {
    let body = serde_json::json!({ "backend": name }).to_string();
    let answer = request(remote, Method::POST, "/admin/switch", Some(body.into())).await?;
    show(remote, &answer, |answer| {
        format!("active: {} (was {})", text(&answer["active"]), text(&answer["previous"]))
    });
    Ok(())
}

/// `throughline stats`
pub async fn stats(remote: &Remote, lineage: Option<&str>) -> Result<(), Failure> {
    let path = match lineage {
        Some(lineage) => format!("/admin/thinking?lineage={}", percent_encode(lineage)),
        None => "/admin/thinking".to_owned(),
    };
    let answer = request(remote, Method::GET, &path, None).await?;
    show(remote, &answer, |answer| {
        let names = [
            ("total", "blocks in use"),
            ("confirmed", "  sent back by a client"),
            ("unconfirmed", "  not sent back yet"),
            ("current_session", "  of the current session"),
            ("old_session", "  of an older session"),
            ("session", "highest session number"),
            ("lineages", "conversations"),
            ("bytes", "bytes of memory"),
            ("restored", "blocks restored"),
            ("tried", "unknown blocks tried"),
            ("refused", "blocks rejected"),
        ];
        let rows = names.iter().map(|(name, what)| vec![(*what).to_owned(), text(&answer[*name])]);
        table(&["thinking memory", ""], rows)
    });
    Ok(())
}

/// `throughline turns`
pub async fn turns(remote: &Remote, limit: usize, blocks: bool) -> Result<(), Failure> {
    let path = format!("/admin/turns?limit={limit}");
    let answer = request(remote, Method::GET, &path, None).await?;
    show(remote, &answer, |answer| turn_table::turns(answer, blocks));
    Ok(())
}

/// Sends a request to the gateway and reads the JSON answer.
pub async fn request(
    remote: &Remote,
    method: Method,
    path: &str,
    body: Option<Bytes>,
) -> Result<Value, Failure> {
    let (base, has_mistakes) = match &remote.url {
        Some(url) => (url.trim_end_matches('/').to_owned(), false),
        None => {
            let (listen, has_mistakes) = listen(remote.config.as_deref())?;
            (format!("http://{listen}"), has_mistakes)
        }
    };
    let failed = |reason: String| {
        Failure::Failed(format!("{reason}; is `throughline serve` running at {base}?"))
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("{base}{path}"))
        .header("content-type", "application/json")
        .body(whole(body.unwrap_or_default()))
        .map_err(|error| Failure::Usage(format!("`{base}` is not a valid URL: {error}")))?;
    let response = Client::new(Duration::from_secs(3))
        .send("gateway", request, TIMEOUT)
        .await
        .map_err(|error| {
            let reason = unreachable_reason(&error);
            let mut message = format!(
                "cannot reach a gateway at {base}: {reason}; is `throughline serve` running?"
            );
            if has_mistakes {
                message
                    .push_str(" The configuration has mistakes; `throughline doctor` shows them.");
            }
            Failure::Failed(message)
        })?;
    let status = response.status();
    let body = tokio::time::timeout(TIMEOUT, response.into_body().collect())
        .await
        .map_err(|_| failed("the gateway did not finish its answer".into()))?
        .map_err(|error| failed(error.to_string()))?
        .to_bytes();
    let answer: Value = serde_json::from_slice(&body).map_err(|_| {
        failed(format!("the answer (status {status}) does not come from a gateway"))
    })?;
    if !status.is_success() {
        return Err(Failure::Failed(error_message(&answer)));
    }
    Ok(answer)
}

/// The message of an error in any dialect.
fn error_message(answer: &Value) -> String {
    let places = [&answer["error"]["message"], &answer["message"], &answer["error"]];
    let message = places.into_iter().find_map(Value::as_str);
    message.map_or_else(|| answer.to_string(), str::to_owned)
}

/// The innermost cause of a failed request, without the system's error number.
fn unreachable_reason(error: &SendError) -> String {
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

/// Percent-encodes a value for a query.
pub fn percent_encode(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02x}"),
        })
        .collect()
}

pub(super) fn show(remote: &Remote, answer: &Value, readable: impl FnOnce(&Value) -> String) {
    if remote.json {
        print(&answer.to_string());
    } else {
        print(&readable(answer));
    }
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Lays out rows in columns, each as wide as its widest cell.
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
