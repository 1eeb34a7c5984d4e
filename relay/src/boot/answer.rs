//! What is answered of an image: all of it, a range, or only how long it is. By RFC 9110, as far as BMCs use it: one range,
//! or all.

use super::image::{CHUNK, Image};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use std::{io, ops::Range, sync::Arc};

/// A body of an answer.
pub(super) type Body = BoxBody<Bytes, io::Error>;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Without the bytes themselves.
    head_only: bool,
    /// The range, as it was asked for.
    range: Option<String>,
}

impl Wanted {
    /// What a request asks for; `None` if it is neither GET nor HEAD.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        let head_only = request.method() == Method::HEAD;
        (head_only || request.method() == Method::GET)
            .then(|| Self { head_only, range: range_header(request.headers()) })
    }
}

/// The range, unless it is only for a version that is named: an image has none.
fn range_header(headers: &HeaderMap) -> Option<String> {
    let range = headers.get(header::RANGE)?.to_str().ok()?;
    (!headers.contains_key(header::IF_RANGE)).then(|| range.to_owned())
}

/// Which bytes of so many a range means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// All: no range, several, or none that is understood.
    Whole,
    /// These.
    Some(Range<u64>),
    /// None of those that there are.
    Beyond,
}

fn part(range: Option<&str>, bytes: u64) -> Part {
    let spec = range.and_then(|range| range.trim().strip_prefix("bytes=")).filter(|spec| !spec.contains(','));
    let Some((first, last)) = spec.and_then(|spec| spec.split_once('-')) else { return Part::Whole };
    let number = |text: &str| -> Option<u64> {
        let digits = text.trim();
        // More than fits is more than there is.
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first > last => Part::Whole,
        (Some(first), _) if first >= bytes => Part::Beyond,
        (Some(first), Some(last)) => Part::Some(first..last.saturating_add(1).min(bytes)),
        (Some(first), None) if last.trim().is_empty() => Part::Some(first..bytes),
        (None, Some(0)) => Part::Beyond,
        (None, Some(length)) if first.trim().is_empty() => Part::Some(bytes.saturating_sub(length)..bytes),
        _ => Part::Whole,
    }
}

/// Answers with an image in which this is written.
pub(super) fn answer(wanted: &Wanted, image: &Arc<Image>, region: Vec<u8>) -> Response<Body> {
    let bytes = image.bytes;
    let (status, range) = match part(wanted.range.as_deref(), bytes) {
        Part::Whole => (StatusCode::OK, 0..bytes),
        Part::Some(range) => (StatusCode::PARTIAL_CONTENT, range),
        Part::Beyond => (StatusCode::RANGE_NOT_SATISFIABLE, 0..0),
    };
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_LENGTH, range.end - range.start)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CACHE_CONTROL, "no-store");
    response = match status {
        StatusCode::PARTIAL_CONTENT => {
            let said = format!("bytes {}-{}/{bytes}", range.start, range.end.saturating_sub(1));
            response.header(header::CONTENT_RANGE, said)
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            response.header(header::CONTENT_RANGE, format!("bytes */{bytes}"))
        }
        _ => response,
    };
    let body =
        if wanted.head_only || range.is_empty() { empty() } else { body(image.clone(), range, region) };
    response.body(body).unwrap_or_else(|_| nothing(StatusCode::INTERNAL_SERVER_ERROR))
}

/// An answer without an image. All that have none look alike.
pub(super) fn nothing(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// The bytes as they are taken, a chunk at a time.
fn body(image: Arc<Image>, range: Range<u64>, region: Vec<u8>) -> Body {
    let region: Arc<[u8]> = region.into();
    let chunks = stream::unfold(range.start, move |at| {
        let (image, region, end) = (image.clone(), region.clone(), range.end);
        async move {
            let length = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            if length == 0 {
                return None;
            }
            let read = tokio::task::spawn_blocking(move || image.read(at, length, &region)).await;
            let chunk = read.map_err(io::Error::other).and_then(|read| read).map(Bytes::from);
            let next = if chunk.is_ok() { at + length as u64 } else { end };
            Some((chunk.map(Frame::data), next))
        }
    });
    BoxBody::new(StreamBody::new(chunks.map(|chunk| chunk)))
}

#[cfg(test)]
mod tests {
    use super::{super::image::tests::image, *};
    use shared::boot::REGION_BYTES;

    #[test]
    fn ranges_as_the_rfc_has_them() {
        for (range, expected) in [
            (None, Part::Whole),
            (Some("bytes=0-0"), Part::Some(0..1)),
            (Some("bytes=0-99"), Part::Some(0..100)),
            (Some("bytes=10-"), Part::Some(10..100)),
            (Some("bytes=10-1000"), Part::Some(10..100)),
            (Some("bytes=-30"), Part::Some(70..100)),
            (Some("bytes=-300"), Part::Some(0..100)),
            (Some("bytes=99-99"), Part::Some(99..100)),
            (Some("bytes=100-"), Part::Beyond),
            (Some("bytes=100-200"), Part::Beyond),
            (Some("bytes=-0"), Part::Beyond),
            (Some("bytes=99999999999999999999999-"), Part::Beyond),
            (Some("bytes=5-99999999999999999999999"), Part::Some(5..100)),
            (Some("bytes=5-2"), Part::Whole),
            (Some("bytes=0-1,5-6"), Part::Whole),
            (Some("bytes=-"), Part::Whole),
            (Some("bytes=a-b"), Part::Whole),
            (Some("bytes=+1-2"), Part::Whole),
            (Some("lines=0-1"), Part::Whole),
        ] {
            assert_eq!(part(range, 100), expected, "{range:?}");
        }
    }

    async fn answered(method: Method, range: Option<&str>) -> (StatusCode, HeaderMap, Bytes) {
        let (file, _) = image(3 * CHUNK, &[CHUNK - 10]);
        let image = Arc::new(Image::open(file.path()).unwrap());
        let mut request = Request::builder().method(method);
        if let Some(range) = range {
            request = request.header(header::RANGE, range);
        }
        let wanted = Wanted::of(&request.body(()).unwrap()).unwrap();
        let (parts, body) = answer(&wanted, &image, vec![b'!'; REGION_BYTES]).into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn all_of_it_a_part_and_only_its_length() {
        let (file, mut whole) = image(3 * CHUNK, &[CHUNK - 10]);
        drop(file);
        whole[CHUNK - 10..CHUNK - 10 + REGION_BYTES].fill(b'!');
        let (status, headers, body) = answered(Method::GET, None).await;
        assert_eq!((status, &headers[header::ACCEPT_RANGES]), (StatusCode::OK, &"bytes".parse().unwrap()));
        assert!(body == whole && headers[header::CONTENT_LENGTH] == whole.len().to_string());
        let (status, headers, body) = answered(Method::GET, Some("bytes=262130-262150")).await;
        assert_eq!((status, body.as_ref()), (StatusCode::PARTIAL_CONTENT, &whole[262_130..=262_150]));
        assert_eq!(headers[header::CONTENT_RANGE], format!("bytes 262130-262150/{}", whole.len()));
        let (status, headers, body) = answered(Method::HEAD, None).await;
        assert!(status == StatusCode::OK && body.is_empty());
        assert_eq!(headers[header::CONTENT_LENGTH], whole.len().to_string());
        let (status, headers, _) = answered(Method::GET, Some("bytes=9999999-")).await;
        assert_eq!(
            (status, headers[header::CONTENT_LENGTH].as_bytes()),
            (StatusCode::RANGE_NOT_SATISFIABLE, &b"0"[..])
        );
        assert_eq!(headers[header::CONTENT_RANGE], format!("bytes */{}", whole.len()));
    }
}
