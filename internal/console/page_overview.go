package console

import "github.com/tallygate/tallygate/internal/access"

func overviewPage() page {
	return page{
		name: "overview", path: "/", title: "Overview", nav: "Overview", least: access.Viewer,
		load:  loadOverview,
		parts: []string{"chain"},
	}
}

func loadOverview(*request) (any, error) { return nil, nil }
