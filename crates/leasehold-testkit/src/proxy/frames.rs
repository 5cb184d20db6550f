//! Requests and replies in a stream of bytes.

/// Cuts a stream into frames: whole requests, replies and messages of the Redis protocol.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Whether it is another protocol, whatever it looks like.
    plain: bool,
}

impl Frames {
    pub(super) fn new(plain: bool) -> Self {
        let bytes = Vec::new();
        Self { bytes, plain }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame that is complete. What is no Redis protocol comes as it is.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        if self.plain {
            let all = std::mem::take(&mut self.bytes);
            return (!all.is_empty()).then_some(all);
        }
        let length = match length(&self.bytes) {
            Length::Known(length) => length,
            Length::Unknown => return None,
            Length::Strange => self.bytes.len(),
        };
        Some(self.bytes.drain(..length).collect())
    }

    /// Whether the server replies to a request. Messages confirm a subscription.
    pub(super) fn expects_reply(&self, request: &[u8]) -> bool {
        let verb = words(request).next().unwrap_or_default();
        !self.plain && !verb.to_ascii_uppercase().ends_with(b"SUBSCRIBE")
    }
}

/// Whether a frame comes by itself, and is no reply.
pub(super) fn is_push(frame: &[u8]) -> bool {
    frame.first() == Some(&b'>')
}

/// Whether one of a request's words is this one, or begins with it and a space.
pub(super) fn contains(request: &[u8], word: &str) -> bool {
    let is_word = |rest: &[u8]| matches!(rest, [] | [b' ', ..]);
    words(request).any(|other| other.strip_prefix(word.as_bytes()).is_some_and(is_word))
}

/// The words of a request: verb and arguments.
fn words(request: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut at, _) = line(request, 0).unwrap_or((request.len(), 0));
    std::iter::from_fn(move || {
        let (begin, length) = line(request, at)?;
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        at = end + 2;
        request.get(begin..end)
    })
}

enum Length {
    Known(usize),
    /// Not all of it has come.
    Unknown,
    /// This is no Redis protocol.
    Strange,
}

fn length(bytes: &[u8]) -> Length {
    let (mut at, mut elements) = (0, 1);
    while elements > 0 {
        let Some(kind) = bytes.get(at) else {
            return Length::Unknown;
        };
        if !b"+-:_,#($=!*~>%|".contains(kind) {
            return Length::Strange;
        }
        let Some((begin, number)) = line(bytes, at) else {
            return Length::Unknown;
        };
        // Where there is nothing, the number is negative.
        let number = usize::try_from(number).ok();
        at = begin;
        elements -= 1;
        match kind {
            b'$' | b'=' | b'!' => at += number.map_or(0, |length| length + 2),
            b'*' | b'~' | b'>' => elements += number.unwrap_or(0),
            b'%' => elements += 2 * number.unwrap_or(0),
            b'|' => elements += 2 * number.unwrap_or(0) + 1,
            _ => {}
        }
    }
    if at > bytes.len() {
        return Length::Unknown;
    }
    Length::Known(at)
}

/// Where the line ends that begins here with a kind, and the number in it, if it is one.
fn line(bytes: &[u8], at: usize) -> Option<(usize, i64)> {
    let rest = bytes.get(at..)?;
    let length = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let text = std::str::from_utf8(rest.get(1..length)?).unwrap_or_default();
    Some((at + length + 2, text.parse().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(chunks: &[&[u8]]) -> Vec<String> {
        let (mut frames, mut all) = (Frames::new(false), Vec::new());
        for chunk in chunks {
            frames.add(chunk);
            while let Some(frame) = frames.next() {
                all.push(String::from_utf8(frame).unwrap());
            }
        }
        all
    }

    #[test]
    fn a_stream_is_cut_where_its_frames_end() {
        let whole = [
            "+OK\r\n",
            ":-7\r\n",
            "$-1\r\n",
            "$4\r\na\r\nb\r\n",
            "*2\r\n:1\r\n*-1\r\n",
            "%1\r\n+a\r\n*1\r\n$0\r\n\r\n",
            ">2\r\n+invalidate\r\n_\r\n",
            "-ERR no\r\n",
        ];
        let stream = whole.concat();
        assert_eq!(frames(&[stream.as_bytes()]), whole);
        let bytes: Vec<_> = stream.as_bytes().chunks(1).collect();
        assert_eq!(frames(&bytes), whole);
    }

    #[test]
    fn what_is_no_protocol_comes_as_it_is() {
        assert_eq!(frames(&[b"\x16\x03", b"x"]), ["\x16\x03", "x"]);
    }

    #[test]
    fn a_request_is_known_by_its_words() {
        let request = b"*3\r\n$7\r\nEVALSHA\r\n$5\r\nrenew\r\n$1\r\n1\r\n";
        assert!(contains(request, "renew") && contains(request, "1"));
        assert!(!contains(request, "rene") && !contains(request, "7"));
        let frames = Frames::new(false);
        assert!(frames.expects_reply(request) && !is_push(request));
        assert!(!frames.expects_reply(b"*2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n"));
    }
}
