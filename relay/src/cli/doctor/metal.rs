//! What metal machines need: the image that their agent starts from, where one is to be served.

use super::judge::Finding;
use crate::{boot::Image, config::Settings};

/// Whether what is to be served to BMCs is an image of the agent; nothing where none is to be.
pub(super) fn look(settings: &Settings) -> Option<Finding> {
    let boot = settings.boot.as_ref()?;
    Some(match Image::open(&boot.image) {
        Ok(_) => Finding::good("agent image", format!("{} is served to BMCs", boot.image.display())),
        Err(error) => Finding::wrong(
            "agent image",
            error.to_string(),
            "install the package bcd-agent-image, name another image by agent_image, or leave boot_listen out",
        ),
    })
}
