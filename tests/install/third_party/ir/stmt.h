#error "a header of gradloom's includes the embedder's"
