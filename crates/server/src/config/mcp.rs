//! The `[[mcp]]` tables: servers whose tools models may call; and `[tools]`, the limits of tool loops.

use throughline_conversations::tool_loop::Limits;
use throughline_tools::{ServerConfig, Transport};

use super::address;
use super::backends::check_name;
use super::diagnostic::{Problem, Report};
use super::mask;
use super::paths::Environment;
use super::values::{LocatedText, Section, Size};

/// Reads all servers. Also returns notes about valid settings that may surprise.
pub(super) fn read(
    top: Section<'_>,
    env: &Environment,
    report: &mut Report<'_>,
) -> (Vec<ServerConfig>, Vec<String>) {
    let mut names: Vec<LocatedText> = Vec::new();
    let (mut servers, mut notes) = (Vec::new(), Vec::new());
    for section in top.tables("mcp") {
        let name: Option<LocatedText> = section.required("name", report);
        if let Some(name) = &name {
            check_name("MCP servers", name, &names, report);
            names.push(name.clone());
        }
        let name = name.map(|name| name.text).unwrap_or_default();
        let transport = transport(section, &name, env, report, &mut notes);
        servers.push(ServerConfig {
            transport,
            allow: texts(section, "allow", report),
            approve: texts(section, "approve", report),
            timeout: section.value("timeout", report),
            name,
        });
    }
    (servers, notes)
}

/// Reads the limits of tool loops.
pub(super) fn read_limits(top: Section<'_>, report: &mut Report<'_>) -> Limits {
    let tools = top.table("tools");
    Limits {
        rounds: tools.value("max_rounds", report),
        time: tools.value("max_time", report),
        parallel: tools.value("max_parallel", report),
        result: tools.value::<Size>("max_result", report).in_memory(),
        approval: tools.value("approval_timeout", report),
    }
}

fn texts(section: Section<'_>, key: &str, report: &mut Report<'_>) -> Vec<String> {
    let texts: Vec<LocatedText> = section.value(key, report);
    texts.into_iter().map(|text| text.text).collect()
}

fn transport(
    section: Section<'_>,
    name: &str,
    env: &Environment,
    report: &mut Report<'_>,
    notes: &mut Vec<String>,
) -> Transport {
    let url: Option<LocatedText> = section.optional("url", report);
    let command = texts(section, "command", report);
    let variable: Option<LocatedText> = section.optional("token_env", report);
    match (section.node("command"), section.node("url")) {
        (Some(_), Some(node)) => {
            let problem = Problem::new("`url` is set together with `command`");
            report.add(&node.position, problem.expected("only one of `command` and `url`"));
        }
        (Some(node), None) if command.is_empty() => {
            let problem = Problem::new("`command` is empty");
            report.add(&node.position, problem.expected("a program and its arguments"));
        }
        (None, None) => {
            if let Some(node) = section.node("name") {
                let problem = Problem::new("this MCP server has neither `command` nor `url`");
                let hint = "use `command` for a program, or `url` for a server that is running";
                report.add(&node.position, problem.hint(hint));
            }
        }
        _ => {}
    }
    for (key, needed, is_used) in
        [("env", "command", url.is_none()), ("token_env", "url", url.is_some())]
    {
        if let (Some(node), false) = (section.node(key), is_used) {
            let message = format!("`{key}` has no effect without `{needed}`");
            report.add(&node.position, Problem::new(message).hint("remove the line"));
        }
    }
    let Some(url) = url else {
        let pairs: Vec<(LocatedText, LocatedText)> = section.value("env", report);
        let environment = pairs.into_iter().map(|(name, value)| (name.text, value.text)).collect();
        return Transport::Process { command, environment };
    };
    if let Err(problem) = address::base_url(&url.text) {
        report.add(&url.position, problem);
    }
    let token = variable.and_then(|variable| {
        if !mask::is_variable_name(&variable.text) {
            // Probably the token itself, which no message may show.
            let problem = Problem::new("`token_env` is not the name of a variable");
            report.add(&variable.position, problem.expected(r#"a name, as in "SEARCH_TOKEN""#));
            return None;
        }
        let token = env.get(&variable.text).cloned();
        if token.is_none() {
            let variable = variable.text;
            notes.push(format!(
                "MCP server `{name}` is called without a token: environment variable `{variable}` is not set"
            ));
        }
        token
    });
    Transport::Http { url: url.text, token }
}
