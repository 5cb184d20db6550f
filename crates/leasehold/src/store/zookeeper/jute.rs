//! The encoding of ZooKeeper's protocol: big-endian numbers, and texts behind their lengths.
//!
//! The formats are those of `zookeeper.jute` of ZooKeeper 3.9.

/// The bytes of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        let mut written = self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        written.0.extend(value);
        written
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }
}

/// The bytes of a reply that are not read yet. `None`: it is not a reply of ZooKeeper.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.take(8)?.try_into().ok().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)?[0] != 0)
    }

    /// Empty if there is none.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        self.take(usize::try_from(length.max(0)).ok()?)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn texts(&mut self) -> Option<Vec<String>> {
        let count = self.int()?;
        // A server encodes characters above U+FFFF, which other programs may use, in another way than UTF-8.
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (0..count).map(|_| self.bytes().map(text)).collect()
    }

    /// The version of the data of a node, of all that a `Stat` says.
    pub(super) fn stat_version(&mut self) -> Option<i32> {
        // Four numbers before it, of 8 bytes each, and 32 bytes behind it.
        self.take(32)?;
        let version = self.int()?;
        self.take(32)?;
        Some(version)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_is_not_utf_8_hides_no_other_one() {
        let written = Writer::default().int(2).bytes(&[0xed, 0xa0, 0x80]);
        let texts = Reader(&written.text("a").0).texts().unwrap();
        assert_eq!(texts.last().map(String::as_str), Some("a"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader(&bytes);
            let _ = (reader.int(), reader.texts(), reader.stat_version(), reader.bytes());
        }
    }
}
