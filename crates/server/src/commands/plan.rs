//! `throughline plan`: what a running gateway would send for a request, without sending it.

use std::io::Read;
use std::path::Path;

use http::Method;
use serde_json::Value;

use super::Failure;
use super::remote::{percent_encode, request, show, text};
use super::turn_table::{block_rows, losses};
use crate::cli::Plan;

/// Reads the request and prints the gateway's report about it.
pub async fn run(options: Plan) -> Result<(), Failure> {
    let body = read(&options.file)?;
    let mut path = format!("/v1/plan?dialect={}", percent_encode(&options.dialect));
    for (name, value) in [("backend", &options.backend), ("model", &options.model)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", percent_encode(value)));
        }
    }
    let report = request(&options.remote, Method::POST, &path, Some(body.into())).await?;
    show(&options.remote, &report, describe);
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut body),
        false => std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut body)),
    };
    read.map_err(|error| Failure::Usage(format!("cannot read `{}`: {error}", file.display())))?;
    Ok(body)
}

fn describe(report: &Value) -> String {
    let lane = match report["lane"].as_str() {
        Some("through") => "the body is edited in place",
        _ => "the request is translated",
    };
    let losses = match losses(&report["losses"], true) {
        none if none.is_empty() => "nothing".to_owned(),
        losses => losses,
    };
    let mut lines = vec![
        format!("backend   {}", text(&report["backend"])),
        format!("model     {}", text(&report["model"])),
        format!("lane      {} ({lane})", text(&report["lane"])),
        format!(
            "thinking  asked {}, sent {}",
            report["thinking"]["asked"], report["thinking"]["sent"]
        ),
        format!("lost      {losses}"),
    ];
    lines.extend(block_rows(report));
    lines.join("\n")
}
