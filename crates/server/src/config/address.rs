//! Checks addresses: `listen`, host names, origins and base URLs. Nothing is looked up, so that a
//! configuration is valid or not without a network.

use std::net::{IpAddr, Ipv6Addr};

use super::diagnostic::{Problem, shown};

/// Checks that an address is `host:port` on the loopback interface.
pub(super) fn listen(text: &str) -> Result<(), Problem> {
    let malformed = || {
        Problem::new(format!("`listen` is {}", shown(text)))
            .expected(r#"an address and a port, as in "127.0.0.1:8484""#)
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || port.parse::<u16>().is_err() || !is_host(host) {
        return Err(malformed());
    }
    if is_loopback(host) {
        return Ok(());
    }
    // Anyone who can reach the gateway can use its API keys, so a public address needs gateway keys.
    Err(Problem::new(format!("`listen` is {}, which is not a loopback address", shown(text)))
        .expected("`localhost`, `127.0.0.1` or `[::1]`")
        .hint(
            "only loopback addresses are possible until gateway keys are available; \
             put a reverse proxy in front",
        ))
}

/// Checks that a string is a host with or without a port, and returns it in lower case.
pub(super) fn allowed_host(text: &str) -> Result<String, Problem> {
    let with_port =
        text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let (host, port) = with_port.map_or((text, None), |(host, port)| (host, Some(port)));
    if is_host(host) && port.is_none_or(|port| port.parse::<u16>().is_ok()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(Problem::new(format!("`allowed_hosts` has {}", shown(text)))
        .expected(r#"a host name, with or without a port, as in "gateway.example""#))
}

/// Checks that a string is the origin of web pages, `null` or `*`, and returns it in lower case.
pub(super) fn page_origin(text: &str) -> Result<String, Problem> {
    let problem = || {
        Problem::new(format!("`cors_origins` has {}", shown(text)))
            .expected(
                r#"an origin as browsers send it, as in "https://app.example", "null" for files, or `*`"#,
            )
    };
    // Browsers send `null` for a page that was opened as a file.
    if ["*", "null"].contains(&text) {
        return Ok(text.to_owned());
    }
    let Some((scheme, host)) = text.split_once("://") else {
        let hint = format!("did you mean `https://{text}`?");
        return Err(match allowed_host(text) {
            Ok(_) => problem().hint(hint),
            Err(_) => problem(),
        });
    };
    // Pages inside applications have schemes of their own, such as `vscode-webview://`.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if scheme.is_empty() || !scheme.bytes().all(plain) {
        return Err(problem());
    }
    if let Some(host) = host.strip_suffix('/') {
        let hint = format!("an origin has no path; did you mean `{scheme}://{host}`?");
        return Err(problem().hint(hint));
    }
    let Ok(host) = allowed_host(host) else {
        return Err(problem());
    };
    // Browsers omit the default port.
    let scheme = scheme.to_ascii_lowercase();
    let host = default_port(&scheme)
        .and_then(|port| host.strip_suffix(port)?.strip_suffix(':'))
        .unwrap_or(&host);
    Ok(format!("{scheme}://{host}"))
}

/// The default port of a scheme.
fn default_port(scheme: &str) -> Option<&'static str> {
    match scheme {
        "https" => Some("443"),
        "http" => Some("80"),
        _ => None,
    }
}

/// A base URL in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    /// The URL as it is written in the configuration.
    pub(super) written: String,
    /// Scheme, host and port in lower case, without the default port.
    pub(super) site: String,
    /// The host alone, in lower case.
    pub(super) host: String,
    /// The path, without a trailing `/`.
    pub(super) path: String,
}

/// Checks and splits a base URL. `upstream` removes what the dialect's path repeats.
pub(super) fn base_url(text: &str) -> Result<Base, Problem> {
    let problem = || Problem::new(format!("`base_url` is {}", shown(text)));
    let expected = r#"a URL as in "https://api.anthropic.com""#;
    let Some((scheme, rest)) = text.split_once("://") else {
        let hint = format!("did you mean `https://{text}`?");
        let host = text.split('/').next().unwrap_or_default();
        let looks_like_host = allowed_host(host).is_ok() && host.contains(['.', ':']);
        let problem = problem().expected(expected);
        return Err(if looks_like_host { problem.hint(hint) } else { problem });
    };
    let scheme = scheme.to_ascii_lowercase();
    let Some(default_port) = default_port(&scheme) else {
        return Err(problem().expected("a URL that starts with `https://` or `http://`"));
    };
    if rest.contains(['?', '#']) {
        return Err(problem().expected("a URL without `?` and `#`"));
    }
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err(Problem::new("`base_url` contains a user name or password")
            .expected("a URL without `@` before the path")
            .hint("use `api_key_env` for keys"));
    }
    let with_port = authority.rsplit_once(':').filter(|_| !authority.ends_with(']'));
    let (host, port) = with_port.map_or((authority, None), |(host, port)| (host, Some(port)));
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    if !is_host(host) || !port_fits {
        return Err(problem().expected(expected));
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(problem().expected("a path of visible ASCII characters"));
    }
    let host = host.to_ascii_lowercase();
    let port = port.filter(|port| *port != default_port);
    let port = port.map_or(String::new(), |port| format!(":{port}"));
    Ok(Base {
        written: text.to_owned(),
        site: format!("{scheme}://{host}{port}"),
        host,
        path: path.trim_end_matches('/').to_owned(),
    })
}

/// Scheme, host and port of a URL that came from [`base_url`].
pub(super) fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + "://".len());
    url[start..].find('/').map_or(url, |at| &url[..start + at])
}

/// Whether a URL from [`base_url`] is on this machine.
pub(super) fn is_local(url: &str) -> bool {
    let authority = origin(url).split_once("://").map_or("", |(_, authority)| authority);
    let with_port = authority.rsplit_once(':').filter(|_| !authority.ends_with(']'));
    is_loopback(with_port.map_or(authority, |(host, _)| host))
}

/// Whether a host is on this machine or in a private network. Only a private network resolves names
/// without a dot.
pub(super) fn is_private(host: &str) -> bool {
    match ip(host) {
        Some(IpAddr::V4(address)) => {
            address.is_loopback() || address.is_private() || address.is_link_local()
        }
        Some(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        None => {
            let endings = [".local", ".internal", ".lan", ".home.arpa", ".localhost"];
            !host.contains('.') || endings.iter().any(|ending| host.ends_with(ending))
        }
    }
}

fn is_loopback(host: &str) -> bool {
    match ip(host) {
        Some(address) => address.is_loopback(),
        None => host.eq_ignore_ascii_case("localhost"),
    }
}

/// The IP address of a host that is not a name.
fn ip(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// A name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']');
        return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(letter) && !text.starts_with('.') && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_accepts_loopback_addresses() {
        for text in [
            "127.0.0.1:8484",
            "localhost:8484",
            "[::1]:8484",
            "127.1.2.3:0",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(listen(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn listen_rejects_other_addresses() {
        for text in [
            "0.0.0.0:8484",
            "[::]:8484",
            "192.168.1.2:80",
            "example.org:80",
            "127.0.0.1.example:80",
            "8484",
            ":8484",
            "localhost",
            "localhost:",
            "localhost:http",
            "localhost:+1",
            "localhost:65536",
            "::1:8484",
            "[::1]",
            "local host:1",
            "",
        ] {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn base_urls_are_normalized() {
        for (text, parts) in [
            (
                "https://api.anthropic.com",
                Some(("https://api.anthropic.com", "api.anthropic.com", "")),
            ),
            (
                "HTTPS://API.z.ai:443/api/Anthropic/v1//",
                Some(("https://api.z.ai", "api.z.ai", "/api/Anthropic/v1")),
            ),
            ("http://localhost:80", Some(("http://localhost", "localhost", ""))),
            ("http://localhost:443/", Some(("http://localhost:443", "localhost", ""))),
            ("http://[::1]:9000/x", Some(("http://[::1]:9000", "[::1]", "/x"))),
            ("http://[::1]", Some(("http://[::1]", "[::1]", ""))),
            ("api.anthropic.com", None),
            ("ftp://api.anthropic.com", None),
            ("https://", None),
            ("https:///v1", None),
            ("https://host:0", None),
            ("https://host:port", None),
            ("https://host:", None),
            ("https://user:password@host", None),
            ("https://host?x=1", None),
            ("https://host/a b", None),
            ("https://ho st", None),
        ] {
            let expected = parts.map(|(site, host, path)| Base {
                written: text.to_owned(),
                site: site.to_owned(),
                host: host.to_owned(),
                path: path.to_owned(),
            });
            assert_eq!(base_url(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn private_networks_are_recognized() {
        for (host, private) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("[::1]", true),
            ("10.1.2.3", true),
            ("172.31.0.1", true),
            ("192.168.0.7", true),
            ("[fd00::1]", true),
            ("[::ffff:10.0.0.1]", true),
            ("vllm", true),
            ("gpu.local", true),
            ("host.docker.internal", true),
            ("8.8.8.8", false),
            ("172.32.0.1", false),
            ("[2001:db8::1]", false),
            ("api.openai.com", false),
            ("local.example", false),
        ] {
            assert_eq!(is_private(host), private, "{host}");
        }
    }

    #[test]
    fn origins_end_before_the_path() {
        for (url, start, local) in [
            ("https://api.z.ai/api/anthropic", "https://api.z.ai", false),
            ("http://localhost:9000", "http://localhost:9000", true),
            ("http://[::1]:9000/x", "http://[::1]:9000", true),
            ("http://127.0.0.1", "http://127.0.0.1", true),
        ] {
            assert_eq!((origin(url), is_local(url)), (start, local), "{url}");
        }
    }

    #[test]
    fn page_origins_are_a_scheme_and_a_host() {
        for (text, origin) in [
            ("https://App.example", Some("https://app.example")),
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("http://[::1]:3000", Some("http://[::1]:3000")),
            ("https://app.example:443", Some("https://app.example")),
            ("HTTP://App.example:80", Some("http://app.example")),
            ("http://[::1]:80", Some("http://[::1]")),
            ("https://[::443]", Some("https://[::443]")),
            ("https://app.example:80", Some("https://app.example:80")),
            ("app://x:443", Some("app://x:443")),
            ("vscode-webview://a1b2", Some("vscode-webview://a1b2")),
            ("*", Some("*")),
            ("https://app.example/", None),
            ("https://app.example/chat", None),
            ("https://*.example", None),
            ("app.example", None),
            ("null", Some("null")),
            ("://x", None),
            ("", None),
        ] {
            assert_eq!(page_origin(text).ok().as_deref(), origin, "{text}");
        }
    }

    #[test]
    fn allowed_hosts_are_names_in_lower_case() {
        for (text, host) in [
            ("Gateway.example", Some("gateway.example")),
            ("gateway.example:8443", Some("gateway.example:8443")),
            ("[fd00::1]", Some("[fd00::1]")),
            ("[fd00::1]:80", Some("[fd00::1]:80")),
            ("https://gateway.example", None),
            ("gateway.example/", None),
            ("*", None),
            ("a b", None),
        ] {
            assert_eq!(allowed_host(text).ok().as_deref(), host, "{text}");
        }
    }
}
