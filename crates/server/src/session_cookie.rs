//! The cookie of a session. It is `HttpOnly`, `SameSite=Strict` and holds for all paths. Over TLS it is also
//! `Secure`, and its name begins with `__Host-`, so that no other host can set it.

use http::{HeaderMap, HeaderValue, header};
use throughline_conversations::users::token::SessionToken;

/// The name of the cookie.
const NAME: &str = "throughline_session";
/// The name of the cookie over TLS.
const SECURE_NAME: &str = "__Host-throughline_session";

/// Writes the cookie for a browser. It lasts for some seconds; `0` removes it.
pub fn write(value: &str, max_age: u64, is_secure: bool) -> HeaderValue {
    let (name, secure) = match is_secure {
        true => (SECURE_NAME, "; Secure"),
        false => (NAME, ""),
    };
    let cookie =
        format!("{name}={value}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Strict{secure}");
    // The text is ASCII.
    let mut cookie = HeaderValue::from_str(&cookie).unwrap_or(HeaderValue::from_static(""));
    cookie.set_sensitive(true);
    cookie
}

/// The token in the cookie. Over TLS only the name counts that no other host can set.
pub fn read(headers: &HeaderMap, is_secure: bool) -> Option<SessionToken> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies: Vec<(&str, &str)> = lines.flat_map(cookies).collect();
    let find = |name| cookies.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
    let plain = || find(NAME).filter(|_| !is_secure);
    find(SECURE_NAME).or_else(plain).and_then(SessionToken::read)
}

/// Whether a request has the cookie, under any of its names.
pub fn is_present(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(cookies).any(|(name, _)| is_ours(name))
}

/// Removes the cookie from a request, so that no provider gets it. Other cookies stay.
pub fn remove(headers: &mut HeaderMap) {
    let header::Entry::Occupied(found) = headers.entry(header::COOKIE) else {
        return;
    };
    let (_, lines) = found.remove_entry_mult();
    let kept: Vec<HeaderValue> = lines.filter_map(|line| without_session(&line)).collect();
    for line in kept {
        headers.append(header::COOKIE, line);
    }
}

/// A line of cookies without ours; `None` if no other is left.
fn without_session(line: &HeaderValue) -> Option<HeaderValue> {
    let text = String::from_utf8_lossy(line.as_bytes());
    if !cookies(&text).any(|(name, _)| is_ours(name)) {
        return Some(line.clone());
    }
    let others: Vec<String> = cookies(&text)
        .filter(|(name, _)| !is_ours(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let line = HeaderValue::from_str(&others.join("; ")).ok();
    line.filter(|line| !line.is_empty())
}

fn is_ours(name: &str) -> bool {
    name == NAME || name == SECURE_NAME
}

fn cookies(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split(';').filter_map(|one| one.trim().split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_str(line).expect("a value"));
        }
        headers
    }

    #[test]
    fn cookie_of_another_host_is_not_taken_over_tls() {
        let token = |symbol: &str| symbol.repeat(42) + "A";
        let (own, planted) = (token("B"), token("C"));
        let hash = |text: &str| SessionToken::read(text).map(|token| token.hash());
        let both = headers(&[&format!("a=b; {NAME}={planted};{SECURE_NAME}={own}")]);
        let plain = headers(&["x", &format!("{NAME}={planted}")]);
        let found =
            |headers: &HeaderMap, is_secure| read(headers, is_secure).map(|token| token.hash());
        assert_eq!(found(&both, true), hash(&own));
        assert_eq!(found(&both, false), hash(&own));
        assert_eq!(found(&plain, true), None);
        assert_eq!(found(&plain, false), hash(&planted));
        assert!(hash(&own).is_some() && hash(&planted).is_some());
    }

    #[test]
    fn only_the_cookie_of_the_session_is_removed() {
        for (lines, left) in [
            (vec![], vec![]),
            (vec!["a=b;c = d"], vec!["a=b;c = d"]),
            (vec!["throughline_session=x"], vec![]),
            (vec!["a=b; throughline_session=x; c=d=e"], vec!["a=b; c=d=e"]),
            (vec!["__Host-throughline_session=x;a=b", "c=d"], vec!["a=b", "c=d"]),
        ] {
            let mut headers = headers(&lines);
            remove(&mut headers);
            let found: Vec<&str> = headers
                .get_all(header::COOKIE)
                .iter()
                .map(|line| line.to_str().expect("a text"))
                .collect();
            assert_eq!(found, left, "{lines:?}");
        }
    }
}
