//! Which host names this server answers to. A web page can point a DNS name of its own at a loopback
//! address (DNS rebinding); the unknown name in `Host` reveals it.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Uri, header};

/// The host names this server answers to.
#[derive(Clone, Debug)]
pub struct Hosts {
    listen: SocketAddr,
    allowed: Vec<String>,
}

impl Hosts {
    /// Allows loopback names, the listen address, and the names in `allowed`.
    pub fn new(listen: SocketAddr, allowed: &[String]) -> Self {
        Self { listen, allowed: allowed.to_vec() }
    }

    /// Whether a request names a host that this server answers to.
    pub fn is_allowed_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let host = uri
            .authority()
            .map(|authority| authority.as_str().to_owned())
            .or_else(|| Some(headers.get(header::HOST)?.to_str().ok()?.to_owned()));
        match (host, headers.contains_key(header::HOST)) {
            (Some(host), _) => self.is_ours(&host),
            // An unreadable name is not ours. Old clients send no name at all, browsers always do.
            (None, present) => !present,
        }
    }

    /// Whether a request comes from a web page of another host.
    pub fn is_cross_origin(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return false;
        };
        let host = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.parse::<Uri>().ok())
            .and_then(|origin| Some(origin.authority()?.as_str().to_owned()));
        !host.is_some_and(|host| self.is_ours(&host))
    }

    fn is_ours(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) if address.is_loopback() || address == self.listen.ip() => true,
            _ => {
                name == "localhost"
                    || self.allowed.iter().any(|allowed| *allowed == name || *allowed == host)
            }
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(host: Option<&'static str>) -> bool {
        let hosts = Hosts::new("127.0.0.1:8484".parse().unwrap(), &["gateway.lan".to_owned()]);
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, http::HeaderValue::from_static(host));
        }
        hosts.is_allowed_host(&Uri::from_static("/v1/messages"), &headers)
    }

    #[test]
    fn only_own_host_names_are_allowed() {
        for host in [
            "localhost",
            "LOCALHOST:8484",
            "127.0.0.1:8484",
            "127.9.9.9",
            "[::1]:8484",
            "[::1]",
            "gateway.lan",
            "gateway.lan:80",
        ] {
            assert!(is_allowed(Some(host)), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8484",
            "10.0.0.1",
            "",
        ] {
            assert!(!is_allowed(Some(host)), "{host}");
        }
        assert!(is_allowed(None));
    }

    #[test]
    fn pages_of_other_hosts_are_cross_origin() {
        let hosts = Hosts::new("127.0.0.1:8484".parse().unwrap(), &[]);
        let with = |origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, http::HeaderValue::from_static(origin));
            hosts.is_cross_origin(&headers)
        };
        assert!(!with("http://127.0.0.1:8484"));
        assert!(with("https://evil.example"));
        assert!(with("null"));
        assert!(!hosts.is_cross_origin(&HeaderMap::new()));
    }
}
