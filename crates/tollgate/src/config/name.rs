//! Names that an application gives to its closures.

/// Whether a file can name a key or an exemption of the registry so. A number is none: it may be a
/// part of an address.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |sign: u8| sign.is_ascii_lowercase() || sign.is_ascii_digit() || matches!(sign, b'-' | b'_');
    let has_letter = text.bytes().any(|sign| sign.is_ascii_lowercase());
    !matches!(text, "header" | "cookie") && has_letter && text.bytes().all(plain)
}
