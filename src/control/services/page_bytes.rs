//! How much of a list goes into one answer, by its bytes.

/// Bytes of a page. Rows may be long, and a client takes only so much at once.
pub(super) const PAGE_BYTES: usize = 1024 * 1024;

/// As many of a page's rows as fit its bytes, the first one always; and whether more follow.
pub(super) fn within_bytes<T: prost::Message>(mut rows: Vec<T>, more: bool) -> (Vec<T>, bool) {
    let mut used = 0;
    let fits = rows.iter().take_while(|row| {
        used += row.encoded_len();
        used <= PAGE_BYTES
    });
    let fits = fits.count().max(1);
    let more = more || fits < rows.len();
    rows.truncate(fits);
    (rows, more)
}
