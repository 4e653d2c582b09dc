//! Reads the images that a request shows, from the workspace.
//!
//! A missing or changed file must never fail a turn; the model is told.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ghost_domain::ImageFile;
use ghost_domain::image::IMAGE_BYTES_MAX;
use ghost_domain::transcript::{Block, Message};
use ghost_domain::write_acl::WorkspacePath;
use ghost_tools::workspace::{Workspace, sha256_hex};

use crate::images::{Shown, replace};

/// Replaces the images with their bytes.
pub(super) async fn load(workspace: &Workspace, messages: &mut [Message]) {
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    let images: Vec<ImageFile> = blocks
        .filter_map(|block| if let Block::ImageFile(image) = block { Some(image.clone()) } else { None })
        .collect();
    let mut loaded = Vec::with_capacity(images.len());
    for image in &images {
        loaded.push(bytes_of(workspace, image).await);
    }
    let mut loaded = loaded.into_iter();
    replace(messages, |image| match loaded.next() {
        Some(Ok(data)) => Shown::Block(Block::Image { media_type: image.media_type.as_str().to_owned(), data }),
        Some(Err(why)) => Shown::Note(image.note(Some(&why))),
        None => Shown::Note(image.note(None)),
    });
}

/// The bytes of an image in base64, or why it cannot be shown.
async fn bytes_of(workspace: &Workspace, image: &ImageFile) -> Result<String, String> {
    let path = WorkspacePath::parse(&image.path, false).map_err(|refusal| refusal.message)?;
    let bytes = workspace.read(&path, IMAGE_BYTES_MAX).await;
    let bytes = bytes.map_err(|refusal| format!("it cannot be shown any more: {}", refusal.message))?;
    match sha256_hex(&bytes) == image.sha256 {
        true => Ok(STANDARD.encode(bytes)),
        false => Err("the file has changed since, so the image of then cannot be shown".to_owned()),
    }
}
