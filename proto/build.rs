//! Compiles the wire contract with protox, so the build needs no `protoc`. Writes the descriptors
//! for gRPC reflection.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir("ghost/v1")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    // The order of a directory differs between machines; the descriptors must not differ.
    files.sort();

    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_source_info(true).include_imports(true).open_files(&files)?;
    let descriptors = PathBuf::from(std::env::var("OUT_DIR")?).join("ghost_descriptors.bin");
    std::fs::write(descriptors, compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        // The field is rarely set and large. Without the box every entry would be as large.
        .boxed(".ghost.v1.ConversationEntry.action")
        .compile_fds(compiler.file_descriptor_set())?;

    println!("cargo:rerun-if-changed=ghost/v1");
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}
