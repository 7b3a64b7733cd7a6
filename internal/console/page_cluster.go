package console

import "github.com/tallygate/tallygate/internal/access"

func clusterPage() page {
	return page{
		name: "cluster", path: "/cluster", title: "Cluster", nav: "Cluster", least: access.Viewer,
		load: func(*request) (any, error) { return nil, nil },
	}
}
