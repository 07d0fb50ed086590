package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
)

//go:embed assets/*
var assetFiles embed.FS

// An Asset is a file that pages refer to.
type Asset struct {
	Type    string // of its content
	Tag     string // changes with the content
	Content []byte
}

// Assets are all of them, by their path.
var Assets = readAssets()

func readAssets() map[string]Asset {
	all := map[string]Asset{}
	for name, kind := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		content, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // the files are built in
		}
		sum := sha256.Sum256(content)
		all["/assets/"+name] = Asset{kind, `"` + hex.EncodeToString(sum[:8]) + `"`, content}
	}
	return all
}
