package turnlog

// An ExtractionKey identifies a stored extraction.
type ExtractionKey struct {
	SourceSHA256 string // hex, of the searched text
	Query        string
	Model        string // names of the models, in the order they are tried
	Prompt       int    // version of the prompt
}
