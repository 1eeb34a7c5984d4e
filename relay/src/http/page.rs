//! Pages for people. They hold no script, load nothing and may not be framed.

use super::problem;
use axum::response::Response;
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};

/// What pages may do: nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// What a page with a form may do: send it to this relay.
const FORM_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// What stands on a page beside its text.
pub(super) enum Beside<'a> {
    /// Nothing.
    Nothing,
    /// A code to copy.
    Code(&'a str),
    /// A link: where it leads, and what it says.
    Link(&'a str, &'a str),
    /// A button that sends an empty form: where to, and what it says.
    Button(&'static str, &'static str),
}

/// A page.
pub(super) fn page(status: StatusCode, title: &str, text: &str, beside: &Beside<'_>) -> Response {
    let (before, after) = match beside {
        Beside::Nothing => Default::default(),
        Beside::Code(code) => (format!("<p><code>{}</code></p>", escaped(code)), String::new()),
        Beside::Link(to, says) => {
            let link = format!("<p><a href=\"{}\" rel=\"noreferrer\">{}</a></p>", escaped(to), escaped(says));
            (String::new(), link)
        }
        Beside::Button(to, says) => {
            let form = format!("<form method=\"post\" action=\"{to}\"><button>{says}</button></form>");
            (String::new(), form)
        }
    };
    let (title, text) = (escaped(title), escaped(text));
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>relay</title>\
         <body style=\"font-family: sans-serif; max-width: 40em; margin: 4em auto\">\
         <h1>{title}</h1>{before}<p>{text}</p>{after}</body></html>\n"
    );
    let mut response = guarded(problem::answer(status, "text/html; charset=utf-8", html));
    if matches!(beside, Beside::Button(..)) {
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(FORM_POLICY));
        // Under no-referrer a browser does not say where a form is from.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    }
    response
}

/// Sends a browser elsewhere.
pub(super) fn redirect(location: &str) -> Response {
    let Ok(value) = HeaderValue::from_str(location) else {
        let failed = StatusCode::INTERNAL_SERVER_ERROR;
        return page(failed, "Not logged in", "The relay failed.", &Beside::Nothing);
    };
    let mut response = guarded(problem::answer(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", ""));
    response.headers_mut().insert(LOCATION, value);
    response
}

/// With the headers that keep a page to itself.
fn guarded(mut response: Response) -> Response {
    let headers: [(HeaderName, &'static str); 3] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_told_becomes_a_pages_own() {
        assert_eq!(escaped("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }

    #[test]
    fn only_a_page_with_a_form_may_send_one_and_only_here() {
        let policy = |beside| {
            let response = page(StatusCode::OK, "a", "b", &beside);
            response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned()
        };
        assert!(policy(Beside::Nothing).contains("form-action 'none'"));
        assert!(policy(Beside::Link("https://a.example", "b")).contains("form-action 'none'"));
        assert!(policy(Beside::Button("/x", "b")).contains("form-action 'self'"));
    }
}
