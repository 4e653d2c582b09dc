//! Decides which images of a conversation a model is shown, and reads those from the workspace. For the others a text
//! stands in the result of the call that returned them.
//!
//! Only images of the running turn are shown. The decision depends on the conversation alone, so that a resumed turn
//! decides the same. A missing or changed file must never fail a turn; the model is told.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ghost_config::plan::ProviderKind;
use ghost_domain::ImageFile;
use ghost_domain::image::{IMAGE_BYTES_MAX, MediaType};
use ghost_domain::model_facts::ModelFacts;
use ghost_domain::transcript::Block;
use ghost_domain::write_acl::WorkspacePath;
use ghost_provider::SharedMessage;
use ghost_tools::workspace::{Workspace, sha256_hex};

/// Images in one request. Anthropic takes 20 of any size, other servers fewer.
pub const IMAGES_MAX: usize = 8;
/// Bytes of all images in one request. In base64 they stay below the 20 MB that Gemini takes.
pub const BYTES_MAX: u64 = 12_000_000;

/// Replaces each image in turn with what `shown` says of it: a block, or a text in the result that the image belongs to.
pub fn replace(messages: &mut [SharedMessage], mut shown: impl FnMut(&ImageFile) -> Result<Block, String>) {
    for message in messages.iter_mut() {
        if !message.blocks.iter().any(|block| matches!(block, Block::ImageFile(_))) {
            continue;
        }
        let mut kept: Vec<Block> = Vec::with_capacity(message.blocks.len());
        for block in std::mem::take(&mut message.blocks) {
            let replaced = if let Block::ImageFile(image) = &block { shown(image) } else { Ok(block) };
            let note = match replaced {
                Ok(block) => {
                    kept.push(block);
                    continue;
                }
                Err(note) => note,
            };
            let result = kept.iter_mut().rev().find_map(|block| match block {
                Block::ToolResult { content, .. } => Some(content),
                _ => None,
            });
            match result {
                Some(content) => {
                    content.push('\n');
                    content.push_str(&note);
                }
                None => kept.push(Block::Text { text: note }),
            }
        }
        message.blocks = kept;
    }
}

/// Why images are left out after a refusal.
pub const REFUSED: &str = "left out, because your provider refused a request that showed it";

/// Whether a conversation has images.
pub fn has_images(messages: &[SharedMessage]) -> bool {
    messages.iter().flat_map(|message| &message.blocks).any(|block| matches!(block, Block::ImageFile(_)))
}

/// Replaces all images with their texts.
pub fn leave_out(messages: &mut [SharedMessage], why: Option<&str>) {
    replace(messages, |image| Err(image.note(why)));
}

/// Why a model cannot be shown an image; `None` if it can.
fn unseen(kind: ProviderKind, facts: &ModelFacts, image: &ImageFile) -> Option<&'static str> {
    if !facts.vision {
        return Some("your model sees no images");
    }
    let takes_gif = matches!(kind, ProviderKind::Anthropic | ProviderKind::OpenAi);
    (image.media_type == MediaType::Gif && !takes_gif).then_some("your model sees no GIF images")
}

/// Leaves out the images that the model does not see, and the oldest if there are too many. Several are left out at a
/// time, so that the beginning of the next requests stays the same and providers can cache it. The newest stays.
pub fn select(messages: &mut [SharedMessage], kind: ProviderKind, facts: &ModelFacts) {
    let mut sizes = Vec::new();
    replace(messages, |image| match unseen(kind, facts, image) {
        Some(why) => Err(image.note(Some(why))),
        None => {
            sizes.push(image.bytes);
            Ok(Block::ImageFile(image.clone()))
        }
    });
    let (mut old, most) = (0, sizes.len().saturating_sub(1));
    while old < most && (sizes.len() - old > IMAGES_MAX || sizes[old..].iter().sum::<u64>() > BYTES_MAX) {
        old = (old + IMAGES_MAX / 2).min(most);
    }
    if old == 0 {
        return;
    }
    let mut at = 0;
    replace(messages, |image| {
        at += 1;
        match at <= old {
            true => Err(image.note(Some("left out for newer images; read it again to see it"))),
            false => Ok(Block::ImageFile(image.clone())),
        }
    });
}

/// Replaces the images with their bytes.
pub(crate) async fn load(workspace: &Workspace, messages: &mut [SharedMessage]) {
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
        Some(Ok(data)) => Ok(Block::Image { media_type: image.media_type.as_str().to_owned(), data }),
        Some(Err(why)) => Err(image.note(Some(&why))),
        None => Err(image.note(None)),
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

#[cfg(test)]
mod tests {
    use ghost_domain::transcript::{Message, Role};
    use proptest::prelude::*;

    use super::*;

    fn image(n: usize, media_type: MediaType, bytes: u64) -> Block {
        let (path, sha256) = (format!("agents/a/{n}"), n.to_string());
        Block::ImageFile(ImageFile { path, media_type, sha256, bytes, width: 8, height: 8 })
    }

    fn result(images: Vec<Block>) -> SharedMessage {
        let result = Block::ToolResult { id: "1".into(), name: "t".into(), content: "{}".into(), is_error: false };
        Message { role: Role::Tool, blocks: std::iter::once(result).chain(images).collect() }.into()
    }

    /// The paths of the images that are shown.
    fn shown(messages: &[SharedMessage]) -> Vec<&str> {
        let blocks = messages.iter().flat_map(|message| &message.blocks);
        blocks
            .filter_map(|block| if let Block::ImageFile(image) = block { Some(image.path.as_str()) } else { None })
            .collect()
    }

    fn text(message: &Message) -> &str {
        match &message.blocks[0] {
            Block::ToolResult { content, .. } => content,
            other => panic!("{other:?}"),
        }
    }

    fn facts(vision: bool) -> ModelFacts {
        ModelFacts { vision, ..ModelFacts::default() }
    }

    // covers: TOOL-15
    #[test]
    fn a_model_that_does_not_see_gets_the_byte_count_in_the_result() {
        let both = || vec![result(vec![image(1, MediaType::Png, 5_000), image(2, MediaType::Gif, 6)])];
        let mut blind = both();
        select(&mut blind, ProviderKind::OpenAi, &facts(false));
        assert_eq!(blind[0].blocks.len(), 1);
        let notes: Vec<&str> = text(&blind[0]).lines().collect();
        assert_eq!(notes[0], "{}");
        assert!(notes[1].starts_with("[image: 5,000 bytes, image/png") && notes[1].contains("agents/a/1"), "{notes:?}");
        assert!(notes[2].starts_with("[image: 6 bytes, image/gif"), "{notes:?}");
        let mut gemini = both();
        select(&mut gemini, ProviderKind::Gemini, &facts(true));
        assert_eq!((shown(&gemini), text(&gemini[0]).contains("image/gif")), (vec!["agents/a/1"], true));
    }

    #[test]
    fn the_newest_images_stay_within_the_bounds() {
        let rounds = |count: usize, bytes| -> Vec<SharedMessage> {
            (0..count).map(|n| result(vec![image(n, MediaType::Png, bytes)])).collect()
        };
        let left = |count, bytes| {
            let mut messages = rounds(count, bytes);
            select(&mut messages, ProviderKind::Anthropic, &facts(true));
            (shown(&messages).len(), shown(&messages).last() == Some(&format!("agents/a/{}", count - 1).as_str()))
        };
        assert_eq!([1, 8, 9, 12, 13].map(|count| left(count, 1)), [1, 8, 5, 8, 5].map(|shown| (shown, true)));
        assert_eq!(left(4, 3_750_000), (1, true), "the newest is always shown");
    }

    proptest! {
        /// An image that was left out is not shown again later, and never more than the bounds allow.
        #[test]
        fn more_images_never_bring_an_older_one_back(sizes in prop::collection::vec(1_u64..3_750_000, 1..30)) {
            let mut first = 0;
            for count in 1..=sizes.len() {
                let mut messages: Vec<SharedMessage> = sizes[..count].iter().enumerate()
                    .map(|(n, bytes)| result(vec![image(n, MediaType::Png, *bytes)])).collect();
                select(&mut messages, ProviderKind::Anthropic, &facts(true));
                let seen = shown(&messages).len();
                prop_assert!((1..=IMAGES_MAX).contains(&seen) && count - seen >= first);
                prop_assert!(sizes[count - seen..count].iter().sum::<u64>() <= BYTES_MAX);
                first = count - seen;
            }
        }
    }
}
