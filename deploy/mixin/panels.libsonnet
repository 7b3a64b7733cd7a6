// Panels of Grafana, as far as the dashboard needs them: no library has to be vendored for these.
{
  local datasource = { type: 'prometheus', uid: '${datasource}' },

  // query is one line of a panel. An exemplar leads from a latency to its trace.
  query(expr, legend, exemplar=false):: {
    expr: expr,
    legendFormat: legend,
    datasource: datasource,
    [if exemplar then 'exemplar']: true,
  },

  local panel(type, title, description, unit, queries) = {
    type: type,
    title: title,
    description: description,
    datasource: datasource,
    fieldConfig: { defaults: { unit: unit, min: 0 }, overrides: [] },
    targets: [queries[i] { refId: std.char(65 + i) } for i in std.range(0, std.length(queries) - 1)],
  },

  // lines draws queries over time; stacked ones add up.
  lines(title, description, unit, queries, stacked=false):: panel('timeseries', title, description, unit, queries) {
    fieldConfig+: { defaults+: { custom: { showPoints: 'never', fillOpacity: if stacked then 30 else 5, stacking: { mode: if stacked then 'normal' else 'none' } } } },
    options: { legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] }, tooltip: { mode: 'multi', sort: 'desc' } },
  },

  // light is a number whose colour says whether it is good. Thresholds are [from, colour].
  light(title, description, unit, expr, thresholds, width=4):: panel('stat', title, description, unit, [$.query(expr, '')]) {
    width:: width,
    height:: 4,
    fieldConfig+: { defaults+: {
      color: { mode: 'thresholds' },
      thresholds: { mode: 'absolute', steps: [{ value: t[0], color: t[1] } for t in thresholds] },
    } },
    options: {
      colorMode: 'background',
      graphMode: 'area',
      justifyMode: 'auto',
      orientation: 'auto',
      textMode: 'auto',
      wideLayout: true,
      showPercentChange: false,
      percentChangeColorMode: 'standard',
      reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    },
  },

  heat(title, description, expr):: panel('heatmap', title, description, 's', [$.query(expr, '{{le}}') { format: 'heatmap' }]) {
    fieldConfig: { defaults: {}, overrides: [] },
    options: {
      calculate: false,
      cellGap: 1,
      color: { mode: 'scheme', scheme: 'Oranges', steps: 64, exponent: 0.5, fill: 'dark-orange', reverse: false },
      yAxis: { axisPlacement: 'left', unit: 's', reverse: false },
      rowsFrame: { layout: 'auto' },
      tooltip: { mode: 'single', yHistogram: false, showColorScale: false },
      legend: { show: true },
      exemplars: { color: 'rgba(255,0,255,0.7)' },
      filterValues: { le: 1e-9 },
      showValue: 'never',
    },
  },

  // laid gives panels their ids and places. Each row is {title, panels}; panels fill it from left to right.
  laid(rows)::
    local place(state, p) =
      local w = if 'width' in p then p.width else 8, h = if 'height' in p then p.height else 8;
      local wraps = state.x + w > 24;
      local x = if wraps then 0 else state.x, y = if wraps then state.y + state.h else state.y;
      state {
        x: x + w,
        y: y,
        h: if wraps then h else std.max(h, state.h),
        id: state.id + 1,
        out: state.out + [p { id: state.id, gridPos: { x: x, y: y, w: w, h: h } }],
      };
    local row(state, r) =
      local y = state.y + state.h;
      local head = { type: 'row', title: r.title, collapsed: false, panels: [], id: state.id, gridPos: { x: 0, y: y, w: 24, h: 1 } };
      std.foldl(place, r.panels, state { x: 0, y: y + 1, h: 0, id: state.id + 1, out: state.out + [head] });
    std.foldl(row, rows, { x: 0, y: 0, h: 0, id: 1, out: [] }).out,

  variable(name, label, query):: {
    name: name,
    label: label,
    type: 'query',
    datasource: datasource,
    query: { query: query, refId: name },
    definition: query,
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { text: ['All'], value: ['$__all'] },
    options: [],
  },
}
