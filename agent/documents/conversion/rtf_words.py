"""The control words of RTF that are text, or begin groups with text or without any."""

# Groups without text of the document itself, by their first word.
UNSHOWN = frozenset(
    "annotation atnid bkmkend bkmkstart colortbl comment datafield datastore filetbl info "
    "latentstyles listtable listoverridetable nonesttables nonshppict objdata pict private revtbl "
    "rsidtbl rxe stylesheet tc themedata xe".split()
)
DATA = frozenset({"objdata", "pict"})  # even if they are not the first word of a group
# The same among those that readers may leave out. Others may hold text, and are named if so.
UNSHOWN_STARRED = UNSHOWN | frozenset(
    "aftncn aftnsep aftnsepc atnauthor atndate atnparent atnref atntime atrfend atrfstart author "
    "background blipbin blipuid colorschememapping cs defchp defpap docvar ds falt fchars "
    "ffdeftext ffentrymcr ffexitmcr ffformat ffhelptext ffname ffstattext fldtype fname fontemb "
    "fontfile ftncn ftnsep ftnsepc generator gridtbl hlinkbase htmltag keycode lchars levelmarker "
    "listpicture macc mailmerge mmathPict mmathPr oldcprops oldpprops oldsprops oldtprops objalias "
    "objclass objname objsect objtime oleclsid panose passwordhash pgdsctbl pgp pgptbl picprop "
    "pn pnseclvl pntxta pntxtb propname protend protstart protusertbl pxe sectrsid shppict svb "
    "template ts txe urtf userprops wgrffmtfilter windowcaption writereservation "
    "writereservhash xmlattrname xmlattrvalue xmlclose xmlnstbl xmlopen".split()
)
HEADERS = frozenset("header headerf headerl headerr".split())
FOOTERS = frozenset("footer footerf footerl footerr".split())
EQUATIONS = frozenset({"moMath", "moMathPara"})
READ_STARRED = frozenset(
    "do dpgroup dptxbx dptxbxtext footnote nesttableprops pntext shpgrp shpinst shptxt".split()
)
CELL = " | "
SIGNS = {
    "par": "\n",
    "line": "\n",
    "sect": "\n",
    "page": "\n",
    "row": "\n",
    "nestrow": "\n",
    "softline": "\n",
    "tab": "\t",
    "cell": CELL,
    "nestcell": CELL,
    "emdash": "\N{EM DASH}",
    "endash": "\N{EN DASH}",
    "bullet": "\N{BULLET}",
    "lquote": "\N{LEFT SINGLE QUOTATION MARK}",
    "rquote": "\N{RIGHT SINGLE QUOTATION MARK}",
    "ldblquote": "\N{LEFT DOUBLE QUOTATION MARK}",
    "rdblquote": "\N{RIGHT DOUBLE QUOTATION MARK}",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
    "footnote": " / ",
    "dptxbxtext": "\n",
    "shptxt": "\n",
}
