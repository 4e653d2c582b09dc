//! Finds out whether a file is an image that a model can be shown.
//!
//! This module must never let an image through that a provider refuses: the refusal would end the turn.

use std::io::Read;

use cap_std::fs::Dir;
use ghost_domain::image::{IMAGE_BYTES_MAX, IMAGE_SIDE_MAX, ImageHead, MediaType};
use ghost_domain::text::clip;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, ImageFile, Refusal};

use super::faults::io_refusal;
use super::files::{open, read, sha256_hex};

/// Bytes that show whether a file is an image.
const HEAD: u64 = 12;

pub(super) fn image(root: &Dir, path: &WorkspacePath) -> Result<Option<ImageFile>, Refusal> {
    let (file, size) = open(root, path)?;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(|error| io_refusal("read", path.as_str(), &error))?;
    if MediaType::of(&head).is_none() {
        return Ok(None);
    }
    let shown = clip(path.as_str(), 120);
    if size > IMAGE_BYTES_MAX {
        let what = format!("the image `{shown}` has {size} bytes; a model is shown at most {IMAGE_BYTES_MAX}");
        return Err(Refusal::new(Code::TooLarge, what).hint("make a smaller copy of it and read that"));
    }
    let bytes = read(root, path, IMAGE_BYTES_MAX)?;
    let Some(head) = ImageHead::read(&bytes) else {
        let what = format!("`{shown}` begins as an image and is damaged");
        return Err(Refusal::new(Code::InvalidArguments, what).hint("write it anew"));
    };
    if head.animated {
        let what = format!("`{shown}` is an image that moves; a model is shown still ones");
        return Err(Refusal::new(Code::InvalidArguments, what).hint("save one picture of it and read that"));
    }
    let side = head.width.max(head.height);
    if side > IMAGE_SIDE_MAX {
        let what =
            format!("a side of the image `{shown}` has {side} pixels; a model is shown at most {IMAGE_SIDE_MAX}");
        return Err(Refusal::new(Code::TooLarge, what).hint("make a smaller copy of it and read that"));
    }
    Ok(Some(ImageFile {
        path: path.as_str().to_owned(),
        media_type: head.media_type,
        sha256: sha256_hex(&bytes),
        bytes: bytes.len() as u64,
        width: head.width,
        height: head.height,
    }))
}
